"""What the server says of itself."""

from __future__ import annotations

from typing import Literal

from backend.schemas.base import Schema


class LoadedLanguageModel(Schema):
    source: str
    """Hub name or folder."""
    device: str
    dtype: str


class Health(Schema):
    status: Literal["ok"]
    version: str
    store_bytes: int
    contexts: int
    language_models: tuple[LoadedLanguageModel, ...]
    """Those in memory now; the others load on first use."""
