"""Base class of the API's bodies, and the error body."""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Schema(BaseModel):
    """Base class: immutable, and unknown fields are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ErrorBody(Schema):
    """Description of the error."""

    code: str
    """Stable, machine-readable code, such as ``run-not-found`` or ``prompt-too-long``."""
    message: str
    """Error message for users, with what to do."""
    detail: dict[str, str | int | float | None] = {}
    """Values that the message mentions."""


class ErrorResponse(Schema):
    """Body of every error response."""

    error: ErrorBody


class ErrorEvent(Schema):
    """Last event of a stream that failed."""

    event: Literal["error"] = "error"
    error: ErrorBody
