"""Steered generation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from backend.schemas.base import ErrorBody, Schema
from backend.schemas.routing import RoutedExpert
from trainer.chat import Turn
from trainer.config import DoseConfig, SteeringConfig

Arm = Literal["default", "steered"]


class SteeringRequest(SteeringConfig):
    """What the trainer's steering takes, or chat turns in place of the prompt."""

    prompt: Annotated[str, Field(max_length=200_000)] = ""
    turns: Annotated[tuple[Turn, ...], Field(max_length=200)] = ()


class DoseRequest(DoseConfig):
    """One edit at several strengths."""

    prompt: Annotated[str, Field(max_length=200_000)] = ""
    turns: Annotated[tuple[Turn, ...], Field(max_length=200)] = ()


class DoseProgressEvent(Schema):
    event: Literal["progress"] = "progress"
    tokens: int
    """Written so far, of all strengths."""
    of: int
    """At most."""
    before: int
    """Requests that come first, while it has to wait."""


class DosePoint(Schema):
    """What one strength did."""

    strength: float
    kl: float
    """KL from the steered next-token distribution to that without edits, after the same text, in nats a token."""
    lift: float
    """How much probability the tokens that the expert promotes gain, among the five most probable."""
    loss: float
    """Of the steered text under the language model without edits, in nats a token: how little it reads like a text."""
    text: str
    """The first of the steered texts."""


class DoseDoneEvent(Schema):
    """The whole curve."""

    event: Literal["done"] = "done"
    points: tuple[DosePoint, ...]
    """In ascending order of strength."""
    default_loss: float
    """Of the language model's own texts."""
    default_text: str
    suggested: float | None
    """The largest strength that shows (0.05 nats of KL more than where the edit changes nothing) before one costs 0.5
    nats a token; null where there is none."""
    promoted: tuple[str, ...]
    """Tokens that the expert by itself makes more likely after the prompt, most of all first."""
    seconds: float


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

DoseEvent = Annotated[DoseProgressEvent | DoseDoneEvent | ErrorEvent, Field(discriminator="event")]
