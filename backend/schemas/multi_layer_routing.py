"""Routing through several layers at once."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mxd.backend.schemas.base import Schema
from mxd.backend.schemas.routing import PromptText, RoutingResponse
from mxd.trainer.config import Method, Size


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
