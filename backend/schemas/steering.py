"""Steered generation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from backend.schemas.base import ErrorBody, Schema
from backend.schemas.routing import RoutedExpert
from trainer.config import SteeringConfig

Arm = Literal["default", "steered"]


class SteeringRequest(SteeringConfig):
    """What the trainer's steering takes, as it is."""


class Alternative(Schema):
    id: int
    text: str
    probability: float


class StartEvent(Schema):
    """First event of a stream."""

    event: Literal["start"] = "start"
    prompt_tokens: int
    max_tokens: int


class ProgressEvent(Schema):
    """The request has to wait for room."""

    event: Literal["progress"] = "progress"
    before: int
    """Requests that come first."""


class TokenEvent(Schema):
    """One new token of one arm; never text that was sent before."""

    event: Literal["token"] = "token"
    arm: Arm
    sample: int
    """Which of the continuations of this arm, from 0."""
    position: int
    """0 for the first generated token."""
    id: int
    text: str
    """The new characters; empty where a character continues in the next token."""
    probability: float
    """Under the arm that generated it."""
    delta_log_probability: float
    """log p with the edits minus log p without them, for this token after this very text, in nats."""
    kl: float
    """KL from the distribution of this arm to the other's, after this very text, in nats."""
    alternatives: tuple[Alternative, ...]
    """The five most probable tokens of this arm."""
    other_alternatives: tuple[Alternative, ...]
    """The five most probable after the same text with the edits taken away (or, in the default arm, applied)."""
    experts: tuple[RoutedExpert, ...]
    """Routing of the position that chose this token, before edits; at most eight."""


class DoneEvent(Schema):
    event: Literal["done"] = "done"
    default_reason: Literal["length", "stop", "end-of-text"]
    steered_reason: Literal["length", "stop", "end-of-text"]
    tokens: int
    seconds: float


class ErrorEvent(Schema):
    event: Literal["error"] = "error"
    error: ErrorBody


SteeringEvent = Annotated[
    StartEvent | ProgressEvent | TokenEvent | DoneEvent | ErrorEvent, Field(discriminator="event")
]
