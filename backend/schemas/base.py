"""What all wire models share, and the one shape of every error."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Schema(BaseModel):
    """Base of every wire model: immutable, and unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ErrorBody(Schema):
    code: str
    """Stable, machine-readable: ``run-not-found``, ``prompt-too-long``, …"""
    message: str
    """One sentence that says what to do."""
    detail: dict[str, str | int | float | None] = {}


class ErrorResponse(Schema):
    """The one shape of every error."""

    error: ErrorBody
