"""Experts that are active on a passage."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mxd.backend.schemas.base import Schema
from mxd.backend.schemas.experts import AutomaticLabel, TokenCount
from mxd.backend.schemas.routing import PromptText

RankBy = Literal["mass", "lift"]
Share = Annotated[float | None, Field(ge=0, le=1)]


class PassageRequest(PromptText):
    """A passage, and how to rank the experts that are active on it."""

    position: Annotated[int | None, Field(ge=0)] = None
    """Position of the only token to consider. Default: all tokens except the start token."""
    by: RankBy = "mass"
    """mass: sum of the expert's activations on the passage. lift: share of its active tokens divided by its density,
    ranked by the lower end of its interval."""
    min_density: Share = None
    """Lower bound on density."""
    max_density: Share = None
    """Upper bound on density."""
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    """Maximum number of experts."""


class PassageToken(Schema):
    """A token of the passage."""

    id: int
    text: str
    start: bool
    """True if this is the start token. It counts only if ``position`` selects it."""


class PassageHit(Schema):
    """An expert that is active on the passage."""

    expert: int
    label: str | None
    """User label."""
    automatic: AutomaticLabel | None
    mass: float
    """Sum of its activations."""
    share: float
    """Share of the considered tokens on which it is active."""
    lift: float | None
    """``share`` divided by its density; null if it is dead or not indexed."""
    lift_low: float | None
    """Lower end of the 95 % Wilson interval of the lift. It treats the tokens of the passage as independent."""
    lift_high: float | None
    """Upper end of the interval."""
    density: float | None
    """Null without an index."""
    max_activation: float | None
    """Largest activation in the index."""
    peak: int
    """Position of the token with its largest activation."""
    active: tuple[tuple[int, float], ...]
    """(position, activation) of each considered token on which it is active."""
    top_tokens: tuple[TokenCount, ...]


class PassageResult(Schema):
    """Ranked experts of a passage."""

    run: str
    tokens: tuple[PassageToken, ...]
    hits: tuple[PassageHit, ...]
    """Best first."""
    matching: int
    """Number of active experts within the bounds."""
    firing: int
    """Number of active experts."""
