"""``mxd serve``, ``mxd demo`` and ``mxd mcp``: the dashboard, the HTTP API and tools for agents."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Annotated, Any, ClassVar

from mxd.backend.cli.base import Command, FlagsOf, ModelCommand, Positional
from mxd.backend.settings import Settings, listen, url_of
from mxd.trainer.errors import UserError
from mxd.trainer.utils.memory import keep_freed_memory_in_threads

SWITCH_INTERVAL_S = 0.0005
"""Thread switch interval. With Python's 5 ms, requests would delay the generating thread by half a token's time."""
IMPORT_DELAY_S = 2.0
"""Delay before the packages of language models are imported, so that they do not slow down the first page."""
WhenReady = Callable[[str], None]
"""Called with the URL once the server accepts requests."""


class ServeCommand(Command):
    """Serve the dashboard and the HTTP API until interrupted, for your runs or for one .mxd file.

    A .mxd file is unpacked once, next to the file. Its contents are verified and nothing in it is executed. Flags that
    are left out are read from their MXD_ environment variables.
    """

    examples: ClassVar = (
        "mxd serve --open",
        "mxd serve gpt2-l8-k32.mxd --language-model ~/models/gpt2",
        "mxd serve --host 0.0.0.0 --port 80 --access tokens --log json",
    )

    file: Positional[Path | None] = None
    """A .mxd file written by 'mxd export --format mxd' (default: serve the runs of the data folder)."""
    into: Path | None = None
    """With a .mxd file: folder to unpack it to (default: next to the file, with its name)."""
    language_model: str | None = None
    """With a .mxd file: folder or Hub name of its language model, for routing and steering. Browsing needs none."""
    open: bool = False
    """Open the dashboard in a browser."""
    flags: Annotated[dict[str, Any], FlagsOf(Settings, without=frozenset({"data", "database"}))]

    def run(self) -> None:
        settings = self.settings(**self.flags)
        if self.file is not None:
            if self.data is not None or self.database is not None:
                raise UserError("A .mxd file has its own data folder and database. Leave out --data and --database.")
            from mxd.backend.cli.commands.share import absolute_path
            from mxd.backend.export.bundles.pack import unpack

            listen(settings.host, settings.port).close()  # before the slow part: the port is the likeliest error
            folder = self.into or self.file.with_name(f"{self.file.stem}-opened")
            unpack(self.file, folder, absolute_path(self.language_model))
            settings = settings.model_copy(update={"data": folder, "database": None})
        elif self.into is not None or self.language_model is not None:
            raise UserError("--into and --language-model require a .mxd file. Run 'mxd serve FILE'.")
        serve(settings, open_browser if self.open else announce)


def announce(url: str) -> None:
    print(f"MxD Explorer is running at {url} (press Ctrl-C to stop)", flush=True)


def open_browser(url: str) -> None:
    import webbrowser

    announce(url)
    webbrowser.open(url)


def serve(settings: Settings, when_ready: WhenReady) -> None:
    """Serve until interrupted. Raises UserError if the address cannot be bound, or the database cannot be opened."""
    keep_freed_memory_in_threads()  # language models compute in threads
    # Before the slow imports, because the port is the likeliest error.
    with listen(settings.host, settings.port) as listener:
        from mxd.backend.api.app import create_protected_app
        from mxd.backend.api.connections import limited_server
        from mxd.backend.api.middleware import log_to_stderr
        from mxd.backend.inference.run_loader import preload_compute_modules

        log_to_stderr(settings.log)
        application = create_protected_app(settings)
        stop = Event()
        importing = Thread(target=preload_compute_modules, args=(IMPORT_DELAY_S, stop))

        def ready() -> None:
            importing.start()
            when_ready(url_of(listener))

        sys.setswitchinterval(SWITCH_INTERVAL_S)
        with suppress(KeyboardInterrupt):
            limited_server(application, settings, ready).run(sockets=[listener])
        stop.set()


class DemoCommand(Command):
    """Serve the bundled demo: sparse layers of SmolLM2-135M-Instruct.

    The first start converts the language model, unpacks the database and builds its search index.
    """

    examples: ClassVar = ("mxd demo", "mxd demo --open --port 8080", "mxd demo --data my-demo --device cpu")

    data: Path | None = None
    """Folder of a demo (default: the bundled one; an installed package copies it to your user data folder)."""
    flags: Annotated[dict[str, Any], FlagsOf(Settings, only=frozenset({"host", "port", "device", "dtype"}))]
    open: bool = False
    """Open the dashboard in a browser."""

    def run(self) -> None:
        from mxd.backend.database.demo import unpacked_database, writable_demo

        if self.database is not None:
            raise UserError(
                "mxd demo has its own database, next to its folder. Leave out --database, or use a copy of the folder "
                "with --data. For any other database, run 'mxd serve'."
            )
        keep_freed_memory_in_threads()
        folder = self.data or writable_demo()
        settings = self.settings(**self.flags)
        listen(settings.host, settings.port).close()
        prepare_language_models(folder)
        unpacked_database(folder)
        places = {"data": folder, "database": None}
        serve(settings.model_copy(update=places), open_browser if self.open else announce)


def prepare_language_models(folder: Path) -> None:
    """Convert the language models of a demo's runs that are GGUF files, on first use."""
    from mxd.trainer.language_model.sources import converted_folder, is_converted, is_gguf
    from mxd.trainer.storage.run import Run, run_names

    sources = {Run.load(name, folder).language_model_source for name in run_names(folder)}
    for source in filter(is_gguf, sources):
        if not is_converted(source):
            print(f"Converting the language model {source}", file=sys.stderr)
            converted_folder(source)


class McpCommand(ModelCommand):
    """Serve tools for agents over the Model Context Protocol, on standard input and output.

    Agents can search and read experts, route texts, test experts on texts, steer and trace circuits. Every answer has a
    control and a sample size. Requires the package mcp: pip install 'mxd-explorer[mcp]'.
    """

    examples: ClassVar = ("mxd mcp", "mxd mcp --data data --allow-write", "mxd mcp --url https://mxd.example.org")

    allow_write: bool = False
    """Also offer tools that write labels, notes and sessions."""
    url: str | None = None
    """URL of a running server to use, with the token in MXD_TOKEN (default: the runs of the data folder)."""

    def run(self) -> None:
        try:
            import anyio
            import mcp  # noqa: F401
        except ImportError as error:
            raise UserError("The package mcp is not installed. Run: pip install 'mxd-explorer[mcp]'") from error
        from mxd.backend.cli.mcp.tools import api_in_process, api_of_server, serve_stdio

        unused = [f"--{name}" for name in ("data", "database", "device", "dtype") if name in self.model_fields_set]
        if self.url is not None and unused:
            raise UserError(f"The server of --url has its own runs and devices. Leave out {' and '.join(unused)}.")
        if self.url is None:
            api = api_in_process(self.settings(device=self.device, dtype=self.dtype))
        else:
            api = api_of_server(self.url, os.environ.get("MXD_TOKEN", ""))
        anyio.run(serve_stdio, api, self.allow_write)
