"""Attribution graphs of other programs, in Anthropic's format, as circuits. See ``attribution_graph`` for the format.

The format has one number per node and link. The other values of a circuit are derived. The influence of a node is the
step of the cumulative ``influence``. Its effect is the sum over all paths of direct contributions, divided by the
activation of each feature on the way, unless the node states it. Nodes of other logits than the target, and links to
them, are left out. The figures of the whole graph are read from ``mxd_circuit`` in the metadata. Without it, sums cover
the nodes in the file, and ``origins`` is empty.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from mxd.backend.export.attribution_graph import MLP_WITHOUT_RUN
from mxd.trainer.analysis.circuits.graph import (
    Circuit,
    CircuitEdge,
    CircuitNode,
    CircuitToken,
    Kind,
    NextToken,
    Source,
)
from mxd.trainer.errors import UserError

MAX_NODES = 300
"""Nodes of a circuit; the most influential ones are kept."""
OWN_EFFECTS = re.compile(r" \(ablation: predicted [^()]*\)$")
"""Text that ``attribution_graph`` appends to the label of an expert."""
Text = Annotated[str, Field(max_length=2000)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Index = Annotated[int, Field(ge=0, lt=2**31)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class WholeGraph(_Part):
    """Figures of the whole graph, which a file of this program states. See ``Circuit``."""

    runs: Annotated[tuple[Text, ...], Field(max_length=256)]
    layers: Annotated[tuple[Index, ...], Field(max_length=256)]
    logit: Finite
    direct: dict[Source, Finite]
    origins: dict[Source, Finite]
    num_nodes: Index
    retained_influence: Annotated[Finite, Field(ge=0, le=1)]
    retained_edge_influence: Annotated[Finite, Field(ge=0, le=1)]
    rounding: Finite


class GraphMetadata(_Part):
    """Description of a graph."""

    slug: Text
    scan: Text
    prompt: Annotated[str, Field(max_length=100_000)]
    prompt_tokens: Annotated[tuple[Text, ...], Field(min_length=1, max_length=4096)]
    whole: Annotated[WholeGraph | None, Field(alias="mxd_circuit")] = None


class GraphNode(_Part):
    """A feature, error, token or logit."""

    node_id: Text
    feature: int | None
    layer: Text | int
    ctx_idx: Index
    feature_type: Text
    clerp: str = ""
    influence: Finite | None = None
    activation: Finite | None = None
    is_target_logit: bool = False
    token_prob: Finite = 0.0
    run: Text | None = None
    expert: Index | None = None
    influence_share: Finite | None = None
    direct_effect: Finite | None = None
    predicted_effect: Finite | None = None
    measured_effect: Finite | None = None

    @property
    def kind(self) -> Kind:
        """Kind of the node in a circuit."""
        named = self.feature_type.lower()
        if "error" in named:
            return "mlp" if self.clerp.startswith(MLP_WITHOUT_RUN) else "error"
        kinds: Mapping[str, Kind] = {"embedding": "embedding", "logit": "target"}
        return kinds.get(named, "expert")


class GraphLink(_Part):
    """Direct contribution of one node to another."""

    source: Text
    target: Text
    weight: Finite
    influence_share: Finite | None = None


class GraphView(_Part):
    """Nodes that a user pinned and grouped."""

    pinned: Annotated[tuple[Text, ...], Field(max_length=MAX_NODES, alias="pinnedIds")] = ()
    supernodes: Annotated[
        tuple[Annotated[tuple[Text, ...], Field(min_length=1, max_length=MAX_NODES)], ...], Field(max_length=MAX_NODES)
    ] = ()
    """Name and node ids of each group."""


class ForeignGraph(_Part):
    """A graph as a file or request holds it. Unknown fields are ignored."""

    metadata: GraphMetadata
    view: Annotated[GraphView, Field(alias="qParams")] = GraphView()
    nodes: Annotated[tuple[GraphNode, ...], Field(min_length=1, max_length=100_000)]
    links: Annotated[tuple[GraphLink, ...], Field(max_length=1_000_000)]


@dataclass(frozen=True)
class ReadGraph:
    """A circuit that was read, with the labels of its experts."""

    circuit: Circuit
    ids: tuple[str, ...]
    """Ids of the circuit's nodes in the file."""
    measured: tuple[float | None, ...]
    """Measured ablation effects of the circuit's nodes."""
    labels: Mapping[str, Mapping[int, str]]
    """Labels by run and expert. Runs are named after the graph's ``scan`` unless the graph names them."""


def read_graph(graph: ForeignGraph) -> ReadGraph:
    """Convert a graph to a circuit.

    Raises:
        UserError: it has no logit, or a node without a place.
    """
    tokens = graph.metadata.prompt_tokens
    if any(node.ctx_idx >= len(tokens) for node in graph.nodes):
        raise UserError(f"Invalid graph: a node is beyond its {len(tokens)} tokens.")
    logits = [node for node in graph.nodes if node.kind == "target"]
    if not logits:
        raise UserError("Invalid graph: it has no node of feature_type 'logit'.")
    target = max(logits, key=lambda node: (node.is_target_logit, node.token_prob))
    return _circuit(graph, [target, *_most_influential([node for node in graph.nodes if node.kind != "target"])])


def _most_influential(nodes: Sequence[GraphNode]) -> list[GraphNode]:
    return sorted(nodes, key=lambda node: 1.0 if node.influence is None else node.influence)


def _circuit(graph: ForeignGraph, sorted_nodes: Sequence[GraphNode]) -> ReadGraph:
    every_share = _shares(sorted_nodes)
    nodes, shares = sorted_nodes[:MAX_NODES], every_share[:MAX_NODES]
    places = {node.node_id: place for place, node in enumerate(nodes)}
    links = [link for link in graph.links if link.source in places and link.target in places]
    weights = {(places[link.source], places[link.target]): link.weight for link in links}
    effects = _effects(nodes, weights)
    circuit_nodes = [
        _node(graph, node, shares[place], weights.get((place, 0), 0.0), effects[place], place)
        for place, node in enumerate(nodes)
    ]
    whole = graph.metadata.whole or _in_file(graph, nodes, circuit_nodes, weights)
    kept_share = sum(shares[1:]) / (sum(every_share[1:]) or 1.0)
    circuit = Circuit(
        runs=whole.runs,
        layers=whole.layers,
        tokens=_tokens(graph),
        target=_next_token(nodes[0], whole.logit),
        candidates=tuple(_next_token(node, 0.0) for node in graph.nodes if node.kind == "target")[:10],
        nodes=tuple(circuit_nodes),
        edges=_edges(weights, shares, {(places[link.source], places[link.target]): link for link in links}),
        direct=whole.direct,
        origins=whole.origins,
        num_nodes=whole.num_nodes,
        retained_influence=whole.retained_influence * kept_share,
        retained_edge_influence=whole.retained_edge_influence,
        rounding=whole.rounding,
    )
    ids = tuple(node.node_id for node in nodes)
    measured = tuple(node.measured_effect for node in nodes)
    return ReadGraph(circuit, ids, measured, _labels(nodes, circuit_nodes))


def _in_file(
    graph: ForeignGraph,
    nodes: Sequence[GraphNode],
    circuit_nodes: Sequence[CircuitNode],
    weights: Mapping[tuple[int, int], float],
) -> WholeGraph:
    """Figures within the nodes of a file that does not state those of the whole graph."""
    runs = {node.run: node.layer for node in circuit_nodes if node.run is not None and node.layer is not None}
    entering = sum(weight for (_, end), weight in weights.items() if end == 0)
    stated = nodes[0].direct_effect
    return WholeGraph(
        runs=tuple(runs),
        layers=tuple(runs.values()),
        logit=entering if stated is None else stated,
        direct=_by_kind(nodes, [weights.get((place, 0), 0.0) for place in range(len(nodes))]),
        origins={},
        num_nodes=len(graph.nodes),
        retained_influence=1.0,
        retained_edge_influence=1.0,
        rounding=0.0,
    )


def _layer(node: GraphNode) -> int | None:
    return int(node.layer) if str(node.layer).isdecimal() and len(str(node.layer)) < 6 else None


def _node(
    graph: ForeignGraph, node: GraphNode, influence: float, direct: float, effect: float, place: int
) -> CircuitNode:
    is_expert = node.kind == "expert"
    layer = None if node.kind in ("target", "embedding") else _layer(node)
    if is_expert and layer is None:
        raise UserError(f"Invalid graph: node {node.node_id[:60]!r} has no layer.")
    return CircuitNode(
        kind=node.kind,
        position=node.ctx_idx,
        layer=layer,
        run=_run(graph, node, layer) if is_expert else node.run,
        expert=_expert(node) if is_expert else None,
        coefficient=node.activation,
        influence=influence,
        direct=direct if node.direct_effect is None else node.direct_effect,
        effect=effect if node.predicted_effect is None else -node.predicted_effect,
        traced=place == 0 or is_expert,
    )


def _run(graph: ForeignGraph, node: GraphNode, layer: int | None) -> str:
    return node.run or f"{graph.metadata.scan} layer {layer}"


def _expert(node: GraphNode) -> int:
    """Id of a feature: ``expert`` if given, the second part of a node id such as 3_1024_7, or ``feature``."""
    if node.expert is not None:
        return node.expert
    parts = node.node_id.split("_")
    if len(parts) == 3 and parts[1].isdecimal() and len(parts[1]) < 10:
        return int(parts[1])
    return max(0, node.feature or 0)


def _shares(nodes: Sequence[GraphNode]) -> list[float]:
    """Share of influence of each node: the step to its cumulative value. The target, which is first, has 1."""
    scores = [0.0, *(node.influence or 0.0 for node in nodes[1:])]
    steps = [1.0, *(max(0.0, after - before) for before, after in pairwise(scores))]
    stated = [node.influence_share for node in nodes]
    return [step if share is None else share for step, share in zip(steps, stated, strict=True)]


def _depth(node: GraphNode) -> tuple[int, int]:
    """Order along which contributions flow: tokens first, logits last."""
    if node.kind == "target":
        return 1 << 30, 0
    layer = _layer(node)
    return (-1 if layer is None else layer, 0)


def _effects(nodes: Sequence[GraphNode], weights: Mapping[tuple[int, int], float]) -> list[float]:
    """Contribution of each node to the target along all paths, from the last layer backwards."""
    leaving: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for (source, end), weight in weights.items():
        leaving[source].append((end, weight))
    effects = [0.0] * len(nodes)
    for place in sorted(range(1, len(nodes)), key=lambda node: _depth(nodes[node]), reverse=True):
        for end, weight in leaving[place]:
            activation = nodes[end].activation
            effects[place] += weight if end == 0 else weight * effects[end] / activation if activation else 0.0
    return effects


def _edges(
    weights: Mapping[tuple[int, int], float], shares: Sequence[float], links: Mapping[tuple[int, int], GraphLink]
) -> tuple[CircuitEdge, ...]:
    """Edges by descending influence: as stated, or the share of what enters their end, times the influence of that."""
    entering: dict[int, float] = defaultdict(float)
    for (_, end), weight in weights.items():
        entering[end] += abs(weight)
    edges = []
    for (source, end), weight in weights.items():
        derived = abs(weight) / entering[end] * shares[end] if entering[end] else 0.0
        stated = links[source, end].influence_share
        edges.append(CircuitEdge(source, end, weight, derived if stated is None else stated))
    return tuple(sorted(edges, key=lambda edge: -edge.influence))


def _next_token(node: GraphNode, logit: float) -> NextToken:
    quoted = node.clerp.split('"')
    text = '"'.join(quoted[1:-1]) if len(quoted) > 2 else node.clerp
    return NextToken(max(0, node.feature or 0), text, node.token_prob, logit)


def _tokens(graph: ForeignGraph) -> tuple[CircuitToken, ...]:
    ids = {}
    for node in graph.nodes:
        parts = node.node_id.split("_")
        if node.kind == "embedding" and len(parts) == 3 and parts[1].isdecimal() and len(parts[1]) < 10:
            ids[node.ctx_idx] = int(parts[1])
    texts = graph.metadata.prompt_tokens
    return tuple(
        CircuitToken(ids.get(place, 0), text, place == 0 and text.startswith("<") and text.endswith(">"))
        for place, text in enumerate(texts)
    )


def _by_kind(nodes: Sequence[GraphNode], values: Sequence[float]) -> dict[Source, float]:
    sums: dict[Source, float] = {}
    for node, value in zip(nodes, values, strict=True):
        if (kind := node.kind) != "target":
            sums[kind] = sums.get(kind, 0.0) + value
    return sums


def _labels(nodes: Sequence[GraphNode], circuit_nodes: Sequence[CircuitNode]) -> dict[str, dict[int, str]]:
    labels: dict[str, dict[int, str]] = defaultdict(dict)
    for node, placed in zip(nodes, circuit_nodes, strict=True):
        label = OWN_EFFECTS.sub("", node.clerp[:500])
        if placed.run is not None and placed.expert is not None and label not in ("", f"Expert {placed.expert}"):
            labels[placed.run][placed.expert] = label
    return dict(labels)
