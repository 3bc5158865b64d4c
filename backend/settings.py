"""Every setting of the server, as one frozen pydantic model; each can also be given as ``MXD_`` and its name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from backend.addresses import is_loopback

Positive = Annotated[int, Field(gt=0)]
Rate = Annotated[float, Field(gt=0)]
LogFormat = Literal["quiet", "text", "json"]
Access = Literal["auto", "tokens", "open"]
Role = Literal["read", "write"]
"""read: browse, and route within limits. write: steer, label, delete, too."""


INSTALLED_FRONTEND = Path(__file__).resolve().parent / "built_frontend"
"""Where a wheel has the built front end; a checkout builds it elsewhere."""


def _frontend() -> Path:
    checkout = Path(__file__).resolve().parents[1] / "frontend" / "dist"
    return INSTALLED_FRONTEND if INSTALLED_FRONTEND.is_dir() else checkout


def _names(value: object) -> object:
    return tuple(name for part in value.split(",") if (name := part.strip())) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names)]
"""Names with commas between them."""


class Settings(BaseSettings):
    """Where things are, where to listen, and how much one request may ask for."""

    model_config = SettingsConfigDict(env_prefix="MXD_", frozen=True, extra="ignore", use_attribute_docstrings=True)

    data: Path = Path("data")
    """Folder of the runs and, by default, of the store."""
    store: str | None = None
    """SQLAlchemy URL of the store; by default mxd.sqlite in the data folder."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8000
    """Port to listen on; 0 takes a free one."""
    frontend: Path = Field(default_factory=_frontend)
    """Folder of the built front end."""
    device: str = "auto"
    """Where language models run: auto, cpu, cuda or cuda:1."""
    prompt_tokens: Positive = 1024
    """Longest prompt to route or steer, in tokens (less where the language model allows less)."""
    rows: Positive = 64
    """Rows of one batch of generations: four for each sample of a request. What does not fit waits its turn."""
    waiting: Positive = 128
    """Routing and steering requests that may wait or run at once; further ones are refused."""
    runs_in_memory: Positive = 8
    """Runs whose weights and tokenizers are kept; the one used longest ago makes room."""

    access: Access = "auto"
    """auto: anybody on this machine, and elsewhere only with a token. tokens: always with a token. open: anybody who
    reaches the port; only for a port that nobody else can reach."""
    allowed_hosts: Names = ()
    """Names besides localhost and addresses under which browsers may reach the server, with commas between them."""
    body_bytes: Positive = 2 * 1024 * 1024
    """Largest body of a request, in bytes."""
    waiting_requests: Positive = 200
    """Requests that may wait for their answers at a time; more are refused with status 503 until there are fewer."""
    log: LogFormat = "quiet"
    """quiet: problems alone. text or json: a line for each request too, on stderr."""
    browse_rate: Rate = 50.0
    """Requests a second that each token may make for what is stored; four seconds' worth may come at once."""
    compute_rate: Rate = 5.0
    """The same for routing, steering and writing."""
    sign_in_rate: Rate = 1.0
    """Attempts a second to sign in from one address."""

    @property
    def requires_tokens(self) -> bool:
        """Whether the API is for signed-in clients only."""
        return self.access == "tokens" or (self.access == "auto" and not is_loopback(self.host))

    @property
    def store_url(self) -> str:
        """SQLAlchemy URL of the store."""
        from trainer.store import sqlite_url  # SQLAlchemy takes a while, and --help has no need of it

        return self.store or sqlite_url(self.data)
