"""``mxd demo``: serve the bundled demo."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from mxd.backend.cli.base import Command, FlagsOf
from mxd.backend.cli.commands.serve import announce, open_browser, serve
from mxd.backend.database.demo import unpacked_database, writable_demo
from mxd.backend.settings import Settings, listen
from mxd.trainer.utils.memory import keep_freed_memory_in_threads


class DemoCommand(Command):
    """Serve the bundled demo: sparse layers of SmolLM2-135M-Instruct.

    The first start converts the language model, unpacks the database and builds its search index.
    """

    examples: ClassVar = (
        "mxd demo",
        "mxd demo --open --port 8080",
        "mxd demo --data my-demo --device cpu",
    )

    data: Path | None = None
    """Folder of a demo (default: the bundled one; an installed package copies it to your user data folder)."""
    flags: Annotated[dict[str, Any], FlagsOf(Settings, only=frozenset({"host", "port", "device", "dtype"}))] = Field(
        default_factory=dict
    )
    open: bool = False
    """Open the dashboard in a browser."""

    def run(self) -> int:
        """Prepare what is missing, then serve."""
        keep_freed_memory_in_threads()
        folder = self.data or writable_demo()
        settings = self.settings(**self.flags)
        listen(settings.host, settings.port).close()
        prepare_language_models(folder)
        places = {"data": folder, "database": unpacked_database(folder)}
        serve(settings.model_copy(update=places), open_browser if self.open else announce)
        return 0


def prepare_language_models(folder: Path) -> None:
    """Convert the language models of a demo's runs that are GGUF files, on first use.

    Raises:
        NotFoundError: a GGUF file or its package is missing.
        UserError: a run or a GGUF file is damaged.
    """
    from mxd.trainer.language_model.sources import converted_folder, is_converted, is_gguf
    from mxd.trainer.storage.run import Run, run_names

    sources = {Run.load(name, folder).language_model_source for name in run_names(folder)}
    for source in filter(is_gguf, sources):
        if not is_converted(source):
            print(f"Converting the language model {source}", file=sys.stderr)
            converted_folder(source)
