"""Circuits: the experts behind a target, and their measured effects."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from mxd.backend.schemas.base import Schema
from mxd.backend.schemas.routing import PromptText, RoutedExpertInfo
from mxd.trainer.analysis.circuits.graph import Circuit, CircuitCheck
from mxd.trainer.config.analysis import Errors
from mxd.trainer.config.targets import Target, TokenTarget

RunNames = Annotated[tuple[str, ...], Field(min_length=1, max_length=16)]


class CircuitRequest(PromptText):
    """A prompt to trace, and what to explain."""

    runs: RunNames
    """Names of runs for different layers of one language model."""
    target: Target = TokenTarget()
    """Target to explain. Default: the logit of the most probable next token."""
    position: Annotated[int, Field(ge=0)] | None = None
    """Position of the token before the target; 0 is the start token. Default: the last token."""
    errors: Errors = "kept"
    """kept: each layer's reconstruction error is added to its output. dropped: the layers replace the MLPs as they
    are."""
    nodes: Annotated[int, Field(ge=1, le=100)] = 20
    """Number of experts to show."""


class CircuitExpert(RoutedExpertInfo):
    """Label and statistics of an expert in a circuit."""

    promoted: str | None
    """Token that its output promotes most on its examples; null until 'mxd ablate' has measured it."""


class CircuitResponse(Schema):
    """The circuit, with the labels of its experts."""

    graph: Circuit
    experts: dict[str, dict[int, CircuitExpert]]
    """Labels and statistics of the graph's experts, by run and expert."""
    took_ms: float
    """Computation time in milliseconds."""


class CircuitCheckRequest(CircuitRequest):
    """A circuit to check, with the settings that it was traced with."""

    graph: Circuit


class CircuitCheckResponse(Schema):
    """Measured effects of a circuit."""

    check: CircuitCheck
    took_ms: float
    """Computation time in milliseconds."""


class CircuitFileRequest(Schema):
    """A circuit to save in the format of Neuronpedia and circuit-tracer."""

    graph: Circuit
    check: CircuitCheck | None = None
    """Its check. Default: without measured effects."""

    @model_validator(mode="after")
    def _must_fit_together(self) -> Self:
        """Graphs come from a client, which may have changed one."""
        graph, (target, *experts) = self.graph, self.graph.nodes or (None,)
        named = all(node.kind == "expert" and node.run in graph.runs for node in experts)
        numbered = all((node.layer or 0) >= 0 and (node.expert or 0) >= 0 for node in experts)
        complete = all(node.layer is not None and node.expert is not None for node in experts)
        linked = all(0 <= end < len(graph.nodes) for edge in graph.edges for end in (edge.source, edge.target))
        measured = self.check is None or (
            len(self.check.measured) == len(graph.nodes) and len(self.check.edges) == len(graph.edges)
        )
        starts = target is not None and target.kind == "target" and bool(graph.candidates)
        if not (starts and named and numbered and complete and linked and measured):
            raise ValueError("The parts of the graph do not fit together. Send a graph as /api/circuits returns it.")
        return self


class AblatedExpert(Schema):
    """An expert to ablate on one token."""

    run: str
    """Name of its run."""
    position: Annotated[int, Field(ge=0)]
    """Position of the token; 0 is the start token."""
    expert: Annotated[int, Field(ge=0)]
    """Id of the expert."""


class CircuitEffectsRequest(CircuitRequest):
    """Groups of experts to ablate."""

    groups: Annotated[
        tuple[Annotated[tuple[AblatedExpert, ...], Field(min_length=1, max_length=64)], ...],
        Field(min_length=1, max_length=64),
    ]
    """The experts of a group are ablated jointly, each group in its own forward pass."""


class CircuitEffectsResponse(Schema):
    """Measured effects of the requested groups."""

    measured: tuple[float, ...]
    """Change of the target for each group, in the requested order."""
    took_ms: float
    """Computation time in milliseconds."""
