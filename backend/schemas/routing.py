"""Routing of a text through one run or several, next-token predictions and direct effects.

Routing of a text, next-token predictions and direct effects.

Routing through several layers at once.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mxd.backend.schemas.base import Schema
from mxd.backend.schemas.experts import AutomaticLabel
from mxd.trainer.analysis.results import ExpertEffect
from mxd.trainer.config import Method, Size
from mxd.trainer.inference.results import PredictedToken, RoutedToken
from mxd.trainer.language_model.chat_template import Turn


class PromptText(Schema):
    """A text, or chat turns formatted with the tokenizer's chat template."""

    text: Annotated[str, Field(max_length=200_000)] = ""
    turns: Annotated[tuple[Turn, ...], Field(max_length=200)] = ()
    """Chat turns; used instead of the text if not empty."""


class RoutingRequest(PromptText):
    """A text to route."""

    k: Size | None = None
    """Number of experts per token, strongest first. Default: the run's K."""


class PredictionsRequest(RoutingRequest):
    """A text to predict."""

    others: Annotated[tuple[str, ...], Field(max_length=7)] = ()
    """Names of runs whose layers replace the MLPs of other layers at the same time."""


class PredictionsResponse(Schema):
    """Next-token distributions with the original MLPs and with the runs' layers."""

    run: str
    tokens: tuple[PredictedToken, ...]
    """One entry per token of the routing of the same text."""
    took_ms: float
    """Computation time in milliseconds."""


class RoutedExpertInfo(Schema):
    """Label and statistics of an expert."""

    label: str | None
    """User label."""
    automatic: AutomaticLabel | None
    density: float | None
    """Share of indexed tokens on which the expert is active; null without an index."""
    max_activation: float | None
    """Largest gate activation in the index; null without an index."""
    top_tokens: tuple[str, ...]
    """Tokens on which it is active most often."""


class RoutingResponse(Schema):
    """The active experts on each token of a text."""

    run: str
    tokens: tuple[RoutedToken, ...]
    experts: dict[int, RoutedExpertInfo]
    """Labels and statistics of all experts in ``tokens``, by id."""
    max_tokens: int
    """Maximum number of tokens that the server routes."""
    took_ms: float
    """Computation time in milliseconds."""


class EffectsRequest(RoutingRequest):
    """A token of a text."""

    position: Annotated[int, Field(ge=0)]
    """Position of the token, as in the routing of the same text; 0 is the start token."""


class EffectsResponse(Schema):
    """Direct effects on the next token, through final norm and unembedding only."""

    run: str
    position: int
    experts: tuple[ExpertEffect, ...]
    """Active experts, largest activation first."""


class LayerRun(Schema):
    """A run of another layer of the same language model, which can be routed and steered jointly."""

    name: str
    layer: int
    method: Method
    indexed: bool


class LiveOptions(Schema):
    """Runs that can be combined with a run."""

    run: str
    layers: tuple[LayerRun, ...]
    """Compatible runs, sorted by layer."""
    chat: bool
    """True if prompts may be chat turns."""
    no_chat: str | None
    """Reason why they may not, in one sentence."""


class JointRoutingRequest(PromptText):
    """A text to route through several runs."""

    runs: Annotated[tuple[str, ...], Field(min_length=1, max_length=8)]
    """Names of runs for different layers of one language model."""
    k: Size | None = None
    """Number of experts per token in every run, strongest first. Default: each run's K."""


class JointRoutingResponse(Schema):
    """Routings of one text, computed in one forward pass."""

    routings: tuple[RoutingResponse, ...]
    """Routings in the requested order."""
    took_ms: float
    """Computation time in milliseconds."""
