"""Circuits: the graph of a prompt, and what comes of switching its experts off."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from backend.schemas.base import Schema
from backend.schemas.routing import PromptText, RoutedExpertInfo
from trainer.circuits.config import Errors
from trainer.circuits.graph import Kind, Source


class CircuitTarget(PromptText):
    """The logit that is explained."""

    runs: Annotated[tuple[str, ...], Field(min_length=1, max_length=16)]
    """Of different layers of one language model."""
    target: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """Id of the next token; by default the most probable one."""
    position: Annotated[int, Field(ge=0)] | None = None
    """The token behind which it is expected, 0 being the start token; by default the last one."""
    errors: Errors = "kept"
    """kept: what each layer misses of its MLP is added. dropped: the layers answer alone."""


class CircuitRequest(CircuitTarget):
    nodes: Annotated[int, Field(ge=2, le=300)] = 40
    """Kept at most."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Of all influence that the kept nodes hold, where as many are allowed."""


class CircuitToken(Schema):
    id: int
    text: str
    start: bool


class NextToken(Schema):
    id: int
    text: str
    probability: float
    logit: float
    """Less the mean over the vocabulary."""


class CircuitNode(Schema):
    kind: Kind
    """error: what a layer misses of its MLP. mlp: an MLP without a run. embedding: what enters the first block."""
    position: int
    layer: int | None
    run: str | None
    expert: int | None
    coefficient: float | None
    influence: float
    """Share of what reaches the target that passes through it or begins there."""
    direct: float
    """What it adds to the logit past no other expert; for the target, the logit."""
    effect: float
    """The same along all paths."""
    followed: bool
    """Whether its own causes were looked for."""


class CircuitEdge(Schema):
    source: int
    """Places in ``nodes``."""
    target: int
    weight: float
    """What the source adds to the coefficient of the target, or to the logit."""
    influence: float


class CircuitGraph(Schema):
    """The pruned graph."""

    runs: tuple[str, ...]
    """By layer."""
    layers: tuple[int, ...]
    tokens: tuple[CircuitToken, ...]
    target: NextToken
    candidates: tuple[NextToken, ...]
    nodes: tuple[CircuitNode, ...]
    """The target first, then by influence."""
    edges: tuple[CircuitEdge, ...]
    """Most influence first."""
    direct: dict[Source, float]
    """What the logit is the sum of, by kind of source."""
    begins: dict[Source, float]
    """Where paths begin, as shares; of experts those that were not followed."""
    num_nodes: int
    """Before pruning."""
    kept_influence: float
    kept_edges: float
    rounding: float


class CircuitResponse(Schema):
    graph: CircuitGraph
    experts: dict[str, dict[int, RoutedExpertInfo]]
    """By run, of every expert in the graph."""
    took_ms: float


class SwitchedExpert(Schema):
    run: str
    position: Annotated[int, Field(ge=0)]
    expert: Annotated[int, Field(ge=0)]


class CircuitEffectsRequest(CircuitTarget):
    groups: Annotated[
        tuple[Annotated[tuple[SwitchedExpert, ...], Field(min_length=1, max_length=64)], ...],
        Field(min_length=1, max_length=64),
    ]
    """Each switched off by itself and together."""


class CircuitEffect(Schema):
    """What comes of switching a group of experts off."""

    predicted: float
    """Change of the target's logit less the mean, by the graph."""
    measured: float
    """The same in the language model."""
    probability: float
    """Of the target, without them."""


class CircuitAgreement(Schema):
    """Of the groups of one request."""

    correlation: float | None
    """Pearson's; null where it is not defined."""
    same_sign: float | None
    slope: float | None
    """Measured on predicted, through zero."""


class CircuitEffectsResponse(Schema):
    effects: tuple[CircuitEffect, ...]
    """In the order that was asked for."""
    agreement: CircuitAgreement
    took_ms: float
