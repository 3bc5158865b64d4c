"""Steered generation and strength sweeps, as streams of events."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mxd.backend.schemas.base import ErrorBody, Schema
from mxd.trainer.config import DoseConfig, SteeringConfig
from mxd.trainer.inference.results import DoneEvent, DoseDoneEvent, DoseProgressEvent, StartEvent, TokenEvent
from mxd.trainer.language_model.chat_template import Turn


class SteeringRequest(SteeringConfig):
    """A prompt, or chat turns, and edits."""

    prompt: Annotated[str, Field(max_length=200_000)] = ""
    turns: Annotated[tuple[Turn, ...], Field(max_length=200)] = ()
    """Chat turns; used instead of the prompt if not empty."""


class DoseRequest(DoseConfig):
    """A prompt, or chat turns, and one edit at several strengths."""

    prompt: Annotated[str, Field(max_length=200_000)] = ""
    turns: Annotated[tuple[Turn, ...], Field(max_length=200)] = ()
    """Chat turns; used instead of the prompt if not empty."""


class ProgressEvent(Schema):
    """The request is queued."""

    event: Literal["progress"] = "progress"
    queue_position: int
    """Number of requests served before this one."""


class ErrorEvent(Schema):
    """Last event of a stream that failed."""

    event: Literal["error"] = "error"
    error: ErrorBody


SteeringEvent = Annotated[
    StartEvent | ProgressEvent | TokenEvent | DoneEvent | ErrorEvent, Field(discriminator="event")
]

DoseEvent = Annotated[DoseProgressEvent | DoseDoneEvent | ErrorEvent, Field(discriminator="event")]
