"""State of the server."""

from __future__ import annotations

from typing import Literal

from mxd.backend.schemas.base import Schema


class LoadedLanguageModel(Schema):
    """A language model in memory."""

    source: str
    """Hugging Face Hub name or local folder."""
    name: str
    """Short name."""
    device: str
    dtype: str


class Health(Schema):
    """State of the server."""

    status: Literal["ok"]
    version: str
    """Version of MxD Explorer."""
    database_bytes: int
    """Size of the database on disk."""
    examples: int
    """Number of top examples of all runs."""
    language_models: tuple[LoadedLanguageModel, ...]
    """Language models in memory. Others are loaded on first use."""
