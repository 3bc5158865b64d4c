"""Settings of the server. Each can also be set by an environment variable: ``MXD_`` and its name."""

import errno
import hashlib
import ipaddress
import shlex
import socket
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from mxd.trainer.config.training import DtypeChoice
from mxd.trainer.errors import UserError


def host_name(header: str) -> str:
    """Return the host of a Host header in lower case, without port and brackets; empty if the header is invalid."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower().rstrip(".")
    except ValueError:
        return ""


def is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether a server bound to ``host`` can only be reached from this machine."""
    return host == "localhost" or (is_ip_address(host) and ipaddress.ip_address(host).is_loopback)


Positive = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0)]
LogFormat = Literal["quiet", "text", "json"]
Access = Literal["auto", "tokens", "open"]
Role = Literal["read", "write"]
"""read: browse, and route within limits. write: also steer, label and delete."""
INSTALLED_FRONTEND = Path(__file__).resolve().parent / "built_frontend"
"""Folder of the built frontend in an installed package."""
CHECKOUT_FRONTEND = Path(__file__).resolve().parents[1] / "frontend" / "dist"


def _split_names(value: object) -> object:
    """Split comma-separated names, given as one text or as several."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        return value
    return tuple(name for part in parts for item in part.split(",") if (name := item.strip()))


DEMO_DATABASE = "database.sqlite.xz"
"""A demo's database in its data folder, packed: the index of every run, labels, steering sessions and measurements."""


def demo_digest(data: Path) -> str | None:
    """Return the digest of the demo in a data folder; None if it has none."""
    packed = data / DEMO_DATABASE
    return _digest(packed, packed.stat().st_mtime_ns) if packed.is_file() else None


@lru_cache(4)
def _digest(file: Path, _changed: int) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()[:12]


def demo_database(data: Path) -> Path:
    """Return the file of an unpacked demo: one per version of the demo, because its rows belong to the runs."""
    return data.parent / f".demo-{demo_digest(data)}.sqlite"


NameList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_names)]
"""Comma-separated names."""


class Settings(BaseSettings):
    """Paths, network address, access control and limits of the server."""

    model_config = SettingsConfigDict(env_prefix="MXD_", frozen=True, extra="forbid", use_attribute_docstrings=True)

    data: Path = Path("data")
    """Folder of the runs and the database."""
    database: str | None = None
    """SQLAlchemy URL of the database. Default: mxd.sqlite in the data folder."""
    host: str = "127.0.0.1"
    """Address to listen on. The default is only reachable from this machine."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8000
    """Port to listen on. 0 picks a free one."""
    frontend: Path = Field(
        default_factory=lambda: INSTALLED_FRONTEND if INSTALLED_FRONTEND.is_dir() else CHECKOUT_FRONTEND
    )
    """Folder of the built frontend. Default: the one of this installation."""
    device: str = "auto"
    """Device of the language models: auto, cpu, cuda, xpu, mps, or one of several such as cuda:1."""
    dtype: DtypeChoice = "auto"
    """Data type of the language models. auto: bfloat16 on accelerators that have it natively, else float32. Circuits
    and effects are more exact in float32, which needs twice the memory."""
    prompt_tokens: Positive = 1024
    """Maximum length of a prompt, in tokens. The language model may allow less."""
    batch_rows: Positive = 64
    """Maximum rows of one generation batch. Each sample of a request takes four rows; further requests wait."""
    max_inference_requests: Positive = 128
    """Maximum number of queued or running routing and steering requests. Further ones are rejected."""
    language_model_gb: Annotated[float, Field(gt=0)] | None = None
    """Memory for language models, in GB. Before another one is loaded, those that no request needs are unloaded, least
    recently used first, until it fits. Default: the free memory of the device."""
    runs_in_memory: Positive = 8
    """Maximum number of runs whose weights and tokenizers stay in memory. The least recently used one is evicted, also
    if the weights would take over a quarter of the device's memory."""

    access: Access = "auto"
    """auto: require a token unless the server is only reachable from this machine. tokens: always require a token.
    open: never require one; use it only on a port that no one else can reach."""
    allowed_hosts: NameList = ()
    """Comma-separated host names under which browsers may reach the server, besides localhost and IP addresses."""
    body_bytes: Positive = 2 * 1024 * 1024
    """Maximum size of a request body, in bytes."""
    head_bytes: Positive = 32 * 1024
    """Maximum size of the URL and the headers of a request, in bytes. Larger ones are rejected with status 431."""
    request_seconds: Seconds = 15.0
    """Time in which a request must arrive, in seconds."""
    send_seconds: Seconds = 30.0
    """Time in which a client must read a response, in seconds. After that its connection is closed."""
    max_connections: Positive = 1000
    """Maximum number of open connections. Requests on further ones are rejected with status 503."""
    write_seconds: Seconds = 10.0
    """Maximum wait for a turn to write to the database, and for its lock, in seconds; then status 503."""
    statement_seconds: Seconds = 30.0
    """Maximum time for one statement of PostgreSQL, in seconds; then status 503."""
    trusted_proxies: NameList = ()
    """Comma-separated addresses of reverse proxies, whose X-Forwarded-For and X-Forwarded-Proto headers are used."""
    log: LogFormat = "quiet"
    """quiet: log problems only. text, json: also log one line per request, to stderr."""

    @property
    def requires_tokens(self) -> bool:
        return self.access == "tokens" or (self.access == "auto" and not is_loopback(self.host))

    @property
    def database_url(self) -> str:
        from mxd.trainer.storage.database.open import sqlite_file_url

        if self.database is not None:
            return self.database
        demo = demo_database(self.data)
        return sqlite_file_url(demo if demo.is_file() else self.data / "mxd.sqlite")

    @property
    def command_flags(self) -> str:
        """Flags with which a command reads the same runs; empty with the defaults, and if tokens are required."""
        flags = []
        if self.data.resolve() != Path("data").resolve():
            is_below = self.data.is_relative_to(Path.cwd())
            flags += ["--data", str(self.data.relative_to(Path.cwd()) if is_below else self.data)]
        # The URL of another kind of database may hold a password.
        if self.database is not None and self.database.startswith("sqlite:"):
            flags += ["--database", self.database]
        return "" if self.requires_tokens else shlex.join(flags)


LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Wildcard address -> loopback address to print in its place."""


def url_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket, for a browser on this machine."""
    host, port = listener.getsockname()[:2]
    host = LOOPBACK.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def listen(host: str, port: int) -> socket.socket:
    """Bind and return a listening socket."""
    unknown_host = f"Unknown host '{host}'. Choose an address of this machine with --host."
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # socket.create_server names no protocol. asyncio would then not set TCP_NODELAY, which delays every response
        # on a kept-alive connection by 40 ms.
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UserError(unknown_host) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        reasons = {
            errno.EADDRINUSE: f"Port {port} on {host} is in use. Choose another one with --port.",
            errno.EACCES: f"Port {port} requires elevated privileges. Choose one above 1023 with --port.",
        }
        raise UserError(reasons.get(error.errno or 0, unknown_host)) from error
    return listener
