"""What can be done live with a run, and several layers at once."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from backend.schemas.base import Schema
from backend.schemas.routing import PromptText, RoutingResponse
from trainer.config import Method, Size


class LayerRun(Schema):
    """A run of another layer of the same language model: it can be routed and steered together with this one."""

    name: str
    layer: int
    method: Method
    indexed: bool


class LiveOptions(Schema):
    run: str
    layers: tuple[LayerRun, ...]
    """By layer."""
    chat: bool
    """Whether prompts can be chat turns."""
    no_chat: str | None
    """Why not, in a sentence."""


class JointRoutingRequest(PromptText):
    runs: Annotated[tuple[str, ...], Field(min_length=1, max_length=8)]
    """Of different layers of one language model."""
    k: Size | None = None
    """Experts of each token that every run lets through, the strongest first; by default each run's K."""


class JointRoutingResponse(Schema):
    routings: tuple[RoutingResponse, ...]
    """In the order that was asked for, out of one forward pass."""
    took_ms: float
