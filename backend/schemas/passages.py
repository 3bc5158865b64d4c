"""Which experts fire on a passage."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from backend.schemas.base import Schema
from backend.schemas.experts import AutomaticLabel, TokenCount
from backend.schemas.routing import PromptText

RankBy = Literal["mass", "lift"]
Share = Annotated[float | None, Field(ge=0, le=1)]


class PassageRequest(PromptText):
    """A passage, whole or at one of its tokens, and how the experts that fire there are ranked."""

    position: Annotated[int | None, Field(ge=0)] = None
    """Only what fires on this token of the passage, as in its routing; null: on any of them, but the start token."""
    by: RankBy = "mass"
    """``mass``: the sum of its coefficients on the passage; ``lift``: its share of the passage over its usage."""
    min_usage: Share = None
    max_usage: Share = None
    """Bounds that are applied before the ranking, so that they never shorten the answer."""
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class PassageToken(Schema):
    id: int
    text: str
    start: bool
    """The beginning-of-text token that we put in front; it counts only where ``position`` names it."""


class PassageHit(Schema):
    expert: int
    label: str | None
    automatic: AutomaticLabel | None
    mass: float
    """Sum of its coefficients."""
    share: float
    """Of the tokens looked at, those on which it is active."""
    lift: float | None
    """``share`` over its usage; null where it was active nowhere in the index."""
    usage: float | None
    """Null where the run has no index."""
    largest: float | None
    """Its largest coefficient in the index."""
    peak: int
    """Position of the token on which it is strongest."""
    active: tuple[tuple[int, float], ...]
    """(position, coefficient) wherever it is active among the tokens looked at."""
    top_tokens: tuple[TokenCount, ...]


class PassageResult(Schema):
    run: str
    tokens: tuple[PassageToken, ...]
    hits: tuple[PassageHit, ...]
    matching: int
    """Experts that fire there and are within the bounds."""
    firing: int
    """Experts that fire there at all."""
    took_ms: float
