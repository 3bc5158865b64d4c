"""Every setting of the server, as one frozen pydantic model; each can also be given as ``MXD_`` and its name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

Positive = Annotated[int, Field(gt=0)]


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
    frontend: Path = Path(__file__).resolve().parents[1] / "frontend" / "dist"
    """Folder of the built front end."""
    device: str = "auto"
    """Where language models run: auto, cpu, cuda or cuda:1."""
    prompt_tokens: Positive = 1024
    """Longest prompt to route or steer, in tokens (less where the language model allows less)."""
    rows: Positive = 64
    """Rows of one batch of generations: four for each sample of a request. What does not fit waits its turn."""
    waiting: Positive = 128
    """Routing and steering requests that may wait or run at once; further ones are refused."""
    runs_in_memory: Positive = 4
    """Runs whose weights and tokenizers are kept; the one used longest ago makes room."""

    @property
    def store_url(self) -> str:
        """SQLAlchemy URL of the store."""
        from trainer.store import sqlite_url  # SQLAlchemy takes a while, and --help has no need of it

        return self.store or sqlite_url(self.data)
