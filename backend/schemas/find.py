"""Search by effect: experts that make wanted text more probable, their measured effects, and a combination."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mxd.backend.schemas.base import Schema
from mxd.backend.schemas.routing import RoutedExpertInfo
from mxd.trainer.analysis.results import EditEffect, FoundExperts, FoundGroup
from mxd.trainer.config import Edit
from mxd.trainer.config.analysis import FindConfig
from mxd.trainer.language_model.chat_template import Turn


class FindRequest(FindConfig):
    """Wanted and unwanted texts after some prompts, and the runs to search."""

    runs: Annotated[tuple[str, ...], Field(min_length=1, max_length=16)]
    """Names of runs for different layers of one language model."""
    prompts: Annotated[tuple[Annotated[str, Field(max_length=200_000)], ...], Field(max_length=16)] = ()
    """Texts before the wanted one, at most 16. Effects are averaged over them."""
    turns: Annotated[tuple[Turn, ...], Field(max_length=200)] = ()
    """Chat turns; used instead of the prompts if not empty."""


class EffectsOfEditsRequest(FindRequest):
    """Edits to measure."""

    groups: Annotated[tuple[Annotated[tuple[Edit, ...], Field(max_length=16)], ...], Field(max_length=100)]
    """Groups of edits of mode add without conditions, at most 100. Each group is measured on its own."""


class FindResponse(Schema):
    """Experts with their predicted and measured effects."""

    found: FoundExperts
    experts: dict[str, dict[int, RoutedExpertInfo]]
    """Labels and statistics of the experts, by run and expert."""
    took_ms: float
    """Computation time in milliseconds."""


class EffectsOfEditsResponse(Schema):
    """Measured effects and prices."""

    effects: tuple[EditEffect, ...]
    """One per group, in the requested order."""
    took_ms: float
    """Computation time in milliseconds."""


class CombinationResponse(Schema):
    """Edits of several experts that together make wanted text as probable as requested."""

    combination: FoundGroup
    experts: dict[str, dict[int, RoutedExpertInfo]]
    """Labels and statistics of the experts, by run and expert."""
    took_ms: float
    """Computation time in milliseconds."""
