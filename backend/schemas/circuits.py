"""Circuits: the attribution graph of a prompt, and the effects of ablating its experts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mxd.backend.schemas.base import Schema
from mxd.backend.schemas.routing import PromptText, RoutedExpertInfo
from mxd.trainer.analysis.circuits.edge_results import EdgeAttention
from mxd.trainer.analysis.circuits.graph import AblationEffect, Agreement, Circuit, Kind, NodeKey
from mxd.trainer.config.analysis import Errors


class CircuitTarget(PromptText):
    """The logit to explain."""

    runs: Annotated[tuple[str, ...], Field(min_length=1, max_length=16)]
    """Names of runs for different layers of one language model."""
    target: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """Id of the next token to explain. Default: the most probable one."""
    position: Annotated[int, Field(ge=0)] | None = None
    """Position of the token before it; 0 is the start token. Default: the last token."""
    errors: Errors = "kept"
    """kept: each layer's reconstruction error is added to its output. dropped: the layers replace the MLPs as they
    are."""


class CircuitRequest(CircuitTarget):
    """A prompt to trace, and how far to prune its graph."""

    nodes: Annotated[int, Field(ge=2, le=300)] = 40
    """Maximum number of nodes after pruning."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Keep nodes until they hold this share of the total influence, up to ``nodes``."""


class CircuitExpert(RoutedExpertInfo):
    """Label and statistics of an expert in a circuit."""

    promoted: str | None
    """Token that its output promotes most on its examples; null until 'mxd ablate' has measured it."""


class CircuitResponse(Schema):
    """The pruned attribution graph, with the labels of its experts."""

    graph: Circuit
    ids: tuple[str, ...]
    """Id of each node in the graph's file."""
    experts: dict[str, dict[int, CircuitExpert]]
    """Labels and statistics of the graph's experts, by run and expert."""
    took_ms: float
    """Computation time in milliseconds."""


class Supernode(Schema):
    """Nodes that a user grouped under a name."""

    name: str
    nodes: tuple[str, ...]
    """Ids of the nodes."""


class ReadCircuitResponse(CircuitResponse):
    """An attribution graph from a file, with what its author pinned, grouped and measured."""

    prompt: str
    pinned: tuple[str, ...]
    """Ids of pinned nodes."""
    supernodes: tuple[Supernode, ...]
    measured: tuple[float | None, ...]
    """Measured change of the target's logit when each node is ablated; null where the file has none."""
    agreement: Agreement
    """Agreement of these with the predicted changes."""
    whole: bool
    """True if the file states the figures of the whole graph. Otherwise they cover the nodes in the file."""


class AblatedExpert(Schema):
    """An expert to ablate on one token."""

    run: str
    """Name of its run."""
    position: Annotated[int, Field(ge=0)]
    """Position of the token; 0 is the start token."""
    expert: Annotated[int, Field(ge=0)]
    """Id of the expert."""


class CircuitEffectsRequest(CircuitTarget):
    """Groups of experts to ablate."""

    groups: Annotated[
        tuple[Annotated[tuple[AblatedExpert, ...], Field(min_length=1, max_length=64)], ...],
        Field(min_length=1, max_length=64),
    ]
    """The experts of a group are ablated jointly, each group in its own forward pass."""


class CircuitEffectsResponse(Schema):
    """Predicted and measured effects of the requested groups."""

    effects: tuple[AblationEffect, ...]
    """One effect per group, in the requested order."""
    agreement: Agreement
    took_ms: float
    """Computation time in milliseconds."""


class CircuitNodeKey(Schema):
    """A node of a circuit."""

    kind: Kind
    position: Annotated[int, Field(ge=0)]
    """Position of its token; 0 is the start token."""
    layer: Annotated[int, Field(ge=0)] | None = None
    """Layer of an expert, error or mlp node."""
    expert: Annotated[int, Field(ge=0)] | None = None
    """Id of an expert."""

    @property
    def key(self) -> NodeKey:
        """Identity of the node in the graph."""
        return self.kind, self.position, self.layer, self.expert


class CircuitAttentionRequest(CircuitTarget):
    """An edge whose attention to explain."""

    source: CircuitNodeKey
    edge_target: CircuitNodeKey
    """Node that the edge enters: an expert, or the explained next token."""


class CircuitAttentionResponse(Schema):
    """Heads that carried an edge, with the labels of the experts that they depend on."""

    attention: EdgeAttention
    experts: dict[str, dict[int, CircuitExpert]]
    """Labels and statistics of the listed experts, by run and expert."""
    took_ms: float
    """Computation time in milliseconds."""
