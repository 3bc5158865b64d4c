"""Snapshots of what a page shows."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from mxd.backend.schemas.base import Schema
from mxd.backend.schemas.routing import CircuitRequest, RoutingRequest
from mxd.backend.schemas.steering import ShowcaseToken, SteeringRequest
from mxd.trainer.analysis.circuits.graph import Circuit, CircuitCheck
from mxd.trainer.analysis.results import TokenEffect


class ExpertSnapshot(Schema):
    """An expert with its strongest examples."""

    kind: Literal["expert"]
    expert: Annotated[int, Field(ge=0)]
    promoted: Annotated[tuple[TokenEffect, ...], Field(max_length=64)] = ()
    """Next tokens that it promotes, as the page shows them. Default: those measured by 'mxd ablate'."""
    suppressed: Annotated[tuple[TokenEffect, ...], Field(max_length=64)] = ()


class RoutingSnapshot(RoutingRequest):
    """A heat map of a text."""

    kind: Literal["routing"]
    experts: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=64)] = ()
    """Rows, in the order of the page. Default: the experts with the largest shares."""


class GridCell(Schema):
    """An expert on a token."""

    column: Annotated[int, Field(ge=0, lt=1024)]
    """Index of the token among the columns."""
    expert: Annotated[int, Field(ge=0, lt=2**31)]
    value: Annotated[float, Field(allow_inf_nan=False)]
    """Its activation, or the difference of its activations."""


class GridRow(Schema):
    """A row of a grid that the page shows."""

    run: str
    cells: Annotated[tuple[GridCell, ...], Field(min_length=1, max_length=1024)]


class GridSnapshot(RoutingRequest):
    """A text through several layers, or the difference between two texts, as the page shows it."""

    kind: Literal["layers", "difference"]
    second: Annotated[str, Field(max_length=200_000)] = ""
    """The second text of a difference."""
    columns: Annotated[tuple[str, ...], Field(min_length=1, max_length=1024)]
    """Tokens."""
    rows: Annotated[tuple[GridRow, ...], Field(min_length=1, max_length=64)]
    """Layers, the last one first, or experts."""

    @model_validator(mode="after")
    def _columns_exist(self) -> Self:
        if any(cell.column >= len(self.columns) for row in self.rows for cell in row.cells):
            raise ValueError("A cell's column is not among the columns.")
        return self


Texts = Annotated[tuple[tuple[ShowcaseToken, ...], ...], Field(min_length=1, max_length=16)]


class SteeringSnapshot(Schema):
    """Texts that the page has generated."""

    kind: Literal["steering"]
    request: SteeringRequest
    """Settings of the generation."""
    baseline: Texts
    """Tokens of each sample."""
    steered: Texts
    kl_nats: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Mean KL divergence per token of the steered texts, in nats; null to leave it out."""


class CircuitSnapshot(Schema):
    """A circuit that the page has traced."""

    kind: Literal["circuit"]
    request: CircuitRequest
    """Settings of the trace."""
    graph: Circuit
    check: CircuitCheck | None = None
    """Its check. Default: without measured effects."""

    @model_validator(mode="after")
    def _must_fit_together(self) -> Self:
        """Graphs come from a client, which may have changed one."""
        graph, (target, *experts) = self.graph, self.graph.nodes or (None,)
        named = all(node.kind == "expert" and node.run in graph.runs for node in experts)
        numbered = all((node.layer or 0) >= 0 and 0 <= (node.expert or 0) < 2**31 for node in experts)
        complete = all(node.layer is not None and node.expert is not None for node in experts)
        placed = all(0 <= node.position < len(graph.tokens) for node in graph.nodes)
        linked = all(0 <= end < len(graph.nodes) for edge in graph.edges for end in (edge.source, edge.target))
        measured = self.check is None or (
            len(self.check.measured) == len(graph.nodes) and len(self.check.edges) == len(graph.edges)
        )
        starts = target is not None and target.kind == "target" and bool(graph.candidates)
        if not (starts and named and numbered and complete and placed and linked and measured):
            raise ValueError("The parts of the graph do not fit together. Send a graph as /api/circuits returns it.")
        return self


SnapshotRequest = Annotated[
    ExpertSnapshot | RoutingSnapshot | GridSnapshot | SteeringSnapshot | CircuitSnapshot, Field(discriminator="kind")
]


class SnapshotFiles(Schema):
    """A snapshot in several formats."""

    title: str
    html: str
    """A page that needs no network and has no script."""
    markdown: str
    graph: dict[str, Any] | None
    """A circuit in the attribution graph format of Neuronpedia and circuit-tracer; null for others."""
