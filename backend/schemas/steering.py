"""Steered generation and strength sweeps, as streams of events."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mxd.backend.schemas.base import ErrorBody, Schema
from mxd.backend.schemas.routing import RoutedExpert
from mxd.trainer.config import DoseConfig, SteeringConfig
from mxd.trainer.language_model.chat_template import Turn

Variant = Literal["baseline", "steered"]


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


class DoseProgressEvent(Schema):
    """Progress of a strength sweep."""

    event: Literal["progress"] = "progress"
    tokens: int
    """Number of tokens generated so far, over all strengths."""
    total: int
    """Maximum number of tokens."""
    queue_position: int
    """Number of requests served before this one."""


class DosePoint(Schema):
    """Effect of one strength."""

    strength: float
    kl: float
    """Mean KL divergence from the steered to the baseline next-token distribution after the same text, nats/token."""
    lift: float
    """Probability gained by the expert's promoted tokens, counted within the five most probable tokens."""
    loss: float
    """Loss of the steered text under the baseline, in nats per token. High values mean broken text."""
    text: str
    """First steered text."""


class DoseDoneEvent(Schema):
    """The complete dose curve."""

    event: Literal["done"] = "done"
    points: tuple[DosePoint, ...]
    """Points by ascending strength."""
    baseline_loss: float
    """Loss of the baseline texts, in nats per token."""
    baseline_text: str
    """First baseline text."""
    suggested: float | None
    """Largest strength with a visible effect (0.05 nats of KL above no effect) before one costs 0.5 nats per token;
    null if there is none."""
    promoted: tuple[str, ...]
    """Tokens that the expert alone promotes after the prompt, strongest first."""
    seconds: float


class Alternative(Schema):
    """A candidate for a token."""

    id: int
    text: str
    probability: float


class StartEvent(Schema):
    """First event of a stream."""

    event: Literal["start"] = "start"
    prompt_tokens: int
    """Number of tokens of the prompt."""
    max_tokens: int
    """Maximum number of new tokens per continuation."""


class ProgressEvent(Schema):
    """The request is queued."""

    event: Literal["progress"] = "progress"
    queue_position: int
    """Number of requests served before this one."""


class TokenEvent(Schema):
    """One new token of one variant."""

    event: Literal["token"] = "token"
    variant: Variant
    sample: int
    """Index of the continuation within the variant."""
    position: int
    """Index of the new token within the continuation."""
    id: int
    text: str
    """New characters. Empty if a character continues in the next token."""
    probability: float
    """Probability under the variant that generated it."""
    delta_log_probability: float
    """Log-probability with the edits minus log-probability without them, after this text, in nats."""
    kl: float
    """KL divergence from this variant's next-token distribution to the other's, after this text, in nats."""
    alternatives: tuple[Alternative, ...]
    """Five most probable tokens of this variant."""
    other_alternatives: tuple[Alternative, ...]
    """Five most probable tokens of the other variant after the same text."""
    experts: tuple[RoutedExpert, ...]
    """Routing before edits at the position that predicts this token, at most eight experts."""
    reason: Literal["length", "stop", "end-of-text"] | None
    """Why the text ended with this token; null while it grows."""


class DoneEvent(Schema):
    """Last event of a stream."""

    event: Literal["done"] = "done"
    baseline_reason: Literal["length", "stop", "end-of-text"]
    """Why the baseline ended."""
    steered_reason: Literal["length", "stop", "end-of-text"]
    """Why the steered continuation ended."""
    tokens: int
    """Number of tokens generated."""
    seconds: float


class ErrorEvent(Schema):
    """Last event of a stream that failed."""

    event: Literal["error"] = "error"
    error: ErrorBody


SteeringEvent = Annotated[
    StartEvent | ProgressEvent | TokenEvent | DoneEvent | ErrorEvent, Field(discriminator="event")
]

DoseEvent = Annotated[DoseProgressEvent | DoseDoneEvent | ErrorEvent, Field(discriminator="event")]
