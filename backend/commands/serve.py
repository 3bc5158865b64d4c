"""``mxd serve``: the dashboard and the HTTP API in one process."""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Annotated

from pydantic import Field

from backend.commands.base import Command
from backend.settings import Access, LogFormat, Settings
from trainer.errors import UserError
from trainer.heap import keep_memory_freed_in_threads

SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter while others want it: by default the thread that answers could keep the
one that generates waiting for 5 ms, half the time of a token."""
SHUTDOWN_SECONDS = 2
IMPORT_AFTER_SECONDS = 2.0
"""From when the server answers until it imports what language models need: the first page must not wait for that."""
REACHED_AS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that stand for all of a machine, and what to type for this one."""

WhenReady = Callable[[str], None]
"""Called with the address once the server answers."""


class ServeCommand(Command):
    """Serve the dashboard and the API until interrupted. A flag that is left out is read from its MXD_ variable."""

    host: str | None = None
    """Address to listen on (127.0.0.1: this machine only)."""
    port: Annotated[int | None, Field(ge=0, le=65_535)] = None
    """Port to listen on (8000); 0 takes a free one."""
    frontend: Path | None = None
    """Folder of the built front end (frontend/dist)."""
    device: str | None = None
    """Where language models run: auto, cpu or cuda (auto)."""
    prompt_tokens: Annotated[int | None, Field(gt=0)] = None
    """Longest prompt to route or steer, in tokens (1024)."""
    rows: Annotated[int | None, Field(gt=0)] = None
    """Rows of one batch of generations, four for each sample (64)."""
    waiting: Annotated[int | None, Field(gt=0)] = None
    """Routing and steering requests that may wait or run at once (128)."""
    runs_in_memory: Annotated[int | None, Field(gt=0)] = None
    """Runs whose weights and tokenizers are kept (8)."""
    access: Access | None = None
    """auto: anybody on this machine, elsewhere only with a token (see mxd token). tokens: always with a token. open:
    anybody who reaches the port (auto)."""
    allowed_hosts: str | None = None
    """Names besides localhost and addresses under which browsers may reach it, with commas between them."""
    body_bytes: Annotated[int | None, Field(gt=0)] = None
    """Largest body of a request, in bytes (2 MiB)."""
    waiting_requests: Annotated[int | None, Field(gt=0)] = None
    """Requests that may wait for their answers at a time; more are refused (200)."""
    browse_rate: Annotated[float | None, Field(gt=0)] = None
    """Requests a second that each token may make for what is stored (50)."""
    compute_rate: Annotated[float | None, Field(gt=0)] = None
    """The same for routing, steering and writing (5)."""
    sign_in_rate: Annotated[float | None, Field(gt=0)] = None
    """Attempts a second to sign in from one address (1)."""
    log: LogFormat | None = None
    """quiet: problems alone. text or json: a line for each request too, on stderr (quiet)."""
    open: bool = False
    """Open the dashboard in a browser."""

    def run(self) -> int:
        """Serve."""
        own = Settings.model_fields.keys() & type(self).model_fields.keys() - Command.model_fields.keys()
        settings = self.settings(**{name: getattr(self, name) for name in own})
        serve(settings, open_browser if self.open else announce)
        return 0


def announce(url: str) -> None:
    """Say where the server is."""
    print(f"MxD Explorer is at {url} (Ctrl-C stops it)", flush=True)


def open_browser(url: str) -> None:
    """Say where the server is, and open a browser there."""
    import webbrowser

    announce(url)
    webbrowser.open(url)


def serve(settings: Settings, when_ready: WhenReady) -> None:
    """Serve until interrupted.

    Raises:
        UserError: the address cannot be listened on, or the store cannot be opened.
    """
    keep_memory_freed_in_threads()  # language models compute in threads
    # Before the slow imports: the port is what goes wrong most often.
    with listen(settings.host, settings.port) as listener:
        import uvicorn

        from backend.app import create_app
        from backend.commands.token import first_tokens
        from backend.importing import import_ahead
        from backend.observing import log_to_stderr

        log_to_stderr(settings.log)
        application = create_app(settings)
        if settings.requires_tokens:
            first_tokens(application.state.services.store)

        stop = Event()
        importing = Thread(target=import_ahead, args=(IMPORT_AFTER_SECONDS, stop))

        class Server(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                if self.started:
                    importing.start()
                    when_ready(_url(listener))

        sys.setswitchinterval(SWITCH_SECONDS)
        config = uvicorn.Config(
            application,
            # Not uvloop, which takes one new connection a turn: of a crowd, most waited outside to be refused.
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        with suppress(KeyboardInterrupt):
            Server(config).run(sockets=[listener])
        stop.set()


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    host = REACHED_AS.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, taken before anything else so that nobody else takes it.

    Raises:
        UserError: the port is taken, or the host is none of this machine's.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # Not socket.create_server, which names no protocol: asyncio then leaves out TCP_NODELAY, and every answer
        # on a connection that stays open waits for 40 ms.
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UserError(f"{host} is no address of this machine; choose another --host.") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        reasons = {
            errno.EADDRINUSE: f"Port {port} on {host} is taken; choose another with --port.",
            errno.EACCES: f"Port {port} needs more rights than you have; choose one above 1023 with --port.",
        }
        other = f"{host} is no address of this machine; choose another --host."
        raise UserError(reasons.get(error.errno or 0, other)) from error
    return listener
