"""Routing of a text."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from backend.schemas.base import Schema
from backend.schemas.experts import AutomaticLabel
from trainer.chat import Turn
from trainer.config import Size


class PromptText(Schema):
    """A text, or chat turns that the tokenizer's template makes into one."""

    text: Annotated[str, Field(max_length=200_000)] = ""
    turns: Annotated[tuple[Turn, ...], Field(max_length=200)] = ()
    """In place of the text, where there are any."""


class RoutingRequest(PromptText):
    """What is to be routed."""

    k: Size | None = None
    """Experts of each token that are let through, the strongest first; by default the run's K."""


class RoutedExpert(Schema):
    expert: int
    coefficient: float
    share: float
    """Of the summed norms of all active experts' contributions on this token."""
    shares: tuple[float, ...] = ()
    """The same in each layer that is written, from the first on; empty of a run that writes one."""


class Prediction(Schema):
    id: int
    text: str
    original: float
    """Probability of being next with the original MLP."""
    replaced: float
    """Probability with the layer's MLP replaced by the run's layer."""


class RoutedToken(Schema):
    id: int
    text: str
    start: bool
    """The beginning-of-text token that we put in front; hidden by default on screen."""
    experts: tuple[RoutedExpert, ...]
    """Largest coefficient first."""


class PredictedToken(Schema):
    """What is expected after one token of the routed text."""

    kl: float
    """KL from the original next-token distribution to that with the layer replaced, in nats."""
    predictions: tuple[Prediction, ...]
    """The union of both arms' most probable next tokens, by original probability."""


class PredictionsResponse(Schema):
    run: str
    tokens: tuple[PredictedToken, ...]
    """As many as the routing of the same text has."""
    took_ms: float


class RoutedExpertInfo(Schema):
    label: str | None
    automatic: AutomaticLabel | None
    usage: float | None
    largest: float | None
    top_tokens: tuple[str, ...]


class RoutingResponse(Schema):
    run: str
    tokens: tuple[RoutedToken, ...]
    experts: dict[int, RoutedExpertInfo]
    """Of every expert that appears."""
    max_tokens: int
    took_ms: float


class EffectsRequest(RoutingRequest):
    position: Annotated[int, Field(ge=0)]
    """Of the token, as in the routing of the same text; 0 is the start token."""


class TokenEffect(Schema):
    id: int
    text: str
    change: float
    """log p with the expert's contribution minus log p without it, in nats."""


class ExpertEffect(Schema):
    expert: int
    coefficient: float
    promoted: tuple[TokenEffect, ...]
    """Largest change first."""
    suppressed: tuple[TokenEffect, ...]
    """Most negative change first."""


class EffectsResponse(Schema):
    """Direct effects on the next token, through final norm and unembedding alone."""

    run: str
    position: int
    experts: tuple[ExpertEffect, ...]
    """Largest coefficient first."""
