"""Attribution graphs in the common format: their fields, and reading them back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mxd.backend.export.attribution_graph import GraphContext, attribution_graph, node_ids, write_graph
from mxd.backend.export.read_graph import MAX_NODES, ForeignGraph, read_graph
from mxd.trainer.analysis.circuits.graph import (
    AblationEffect,
    Circuit,
    CircuitEdge,
    CircuitNode,
    CircuitToken,
    ExpertAtToken,
    NextToken,
)
from mxd.trainer.errors import UserError

REQUIRED = {"node_id", "feature", "layer", "ctx_idx", "feature_type", "jsNodeId", "clerp"}


@pytest.fixture
def circuit() -> Circuit:
    """Token 1 activates expert 7 of layer 2, which raises the target; the MLP of layer 3 has no run."""
    target = NextToken(5, " fox", 0.5, 4.0)
    return Circuit(
        runs=("first",),
        layers=(2,),
        tokens=(CircuitToken(0, "<s>", True), CircuitToken(9, "The", False)),
        target=target,
        candidates=(target,),
        nodes=(
            CircuitNode("target", 1, None, None, None, None, 1.0, 4.0, 4.0, True),
            CircuitNode("expert", 1, 2, "first", 7, 2.0, 0.6, 3.0, 3.0, True),
            CircuitNode("mlp", 1, 3, None, None, None, 0.3, 1.0, 1.0, False),
            CircuitNode("embedding", 1, None, None, None, None, 0.1, 0.0, 1.5, False),
        ),
        edges=(CircuitEdge(1, 0, 3.0, 0.6), CircuitEdge(2, 0, 1.0, 0.3), CircuitEdge(3, 1, 1.0, 0.1)),
        direct={"expert": 3.0, "mlp": 1.0},
        origins={"embedding": 0.1},
        num_nodes=20,
        retained_influence=0.9,
        retained_edge_influence=0.9,
        rounding=0.0,
    )


def test_nodes_have_labels_and_measured_effects(circuit: Circuit, tmp_path: Path) -> None:
    effects = {ExpertAtToken("first", 1, 7): AblationEffect(-3.0, -2.5, 0.2)}
    graph = attribution_graph(circuit, GraphContext({"first": {7: "foxes"}}, effects))
    assert all(node.keys() >= REQUIRED for node in graph["nodes"])
    expert = graph["nodes"][1]
    assert expert["clerp"] == "foxes (ablation: predicted -3.000, measured -2.500)"
    assert (expert["predicted_effect"], expert["measured_effect"]) == (-3.0, -2.5)
    assert len({node["node_id"] for node in graph["nodes"]}) == len(graph["nodes"])
    scores = [node["influence"] for node in graph["nodes"][1:]]
    assert scores == pytest.approx([0.6, 0.9, 1.0])
    for _ in range(2):  # writing again replaces the entry
        path = write_graph(graph, tmp_path)
    assert [it["slug"] for it in json.loads((tmp_path / "graph-metadata.json").read_text())["graphs"]] == [path.stem]


def test_a_graph_round_trips(circuit: Circuit) -> None:
    written = attribution_graph(circuit, GraphContext({}, {}))
    read = read_graph(ForeignGraph.model_validate(json.loads(json.dumps(written)))).circuit
    assert [node.expert for node in read.nodes] == [None, 7, None, None]
    assert (read.tokens, read.target.text, read.runs) == (circuit.tokens, " fox", ("first",))
    assert {(edge.source, edge.target, edge.weight) for edge in read.edges} == {(1, 0, 3.0), (2, 0, 1.0), (3, 1, 1.0)}
    assert [node.kind for node in read.nodes] == [node.kind for node in circuit.nodes]
    assert [(node.direct, node.effect) for node in read.nodes] == [(node.direct, node.effect) for node in circuit.nodes]


def test_the_figures_of_the_whole_graph_round_trip(circuit: Circuit) -> None:
    written = json.loads(json.dumps(attribution_graph(circuit, GraphContext({}, {}))))
    whole = replace(circuit, runs=("first", "no expert shown"), layers=(2, 9), rounding=0.25)
    read = read_graph(
        ForeignGraph.model_validate(json.loads(json.dumps(attribution_graph(whole, GraphContext({}, {})))))
    )
    assert replace(read.circuit, candidates=whole.candidates) == whole
    del written["metadata"]["mxd_circuit"]
    within = read_graph(ForeignGraph.model_validate(written)).circuit
    assert (within.num_nodes, within.retained_influence, within.origins) == (4, 1.0, {})
    assert within.direct == {"expert": 3.0, "mlp": 1.0, "embedding": 0.0}


def test_effects_follow_from_the_links_of_other_programs(circuit: Circuit) -> None:
    written = attribution_graph(circuit, GraphContext({}, {}))
    nodes = [{k: v for k, v in node.items() if not k.endswith("_effect")} for node in written["nodes"]]
    read = read_graph(ForeignGraph.model_validate({**written, "nodes": nodes})).circuit
    # Along all paths: half of the expert's activation of 2 comes from the token.
    assert [node.effect for node in read.nodes[1:]] == pytest.approx([3.0, 1.0, 1.5])


def test_labels_effects_and_groups_round_trip(circuit: Circuit) -> None:
    effects = {ExpertAtToken("first", 1, 7): AblationEffect(-3.0, -2.5, 0.2)}
    written = attribution_graph(circuit, GraphContext({"first": {7: "foxes"}}, effects))
    written["qParams"] |= {"pinnedIds": ["2_7_1"], "supernodes": [["animals", "2_7_1", "E_9_1"]]}
    graph = ForeignGraph.model_validate(json.loads(json.dumps(written)))
    read = read_graph(graph)
    assert (graph.view.pinned, graph.view.supernodes) == (("2_7_1",), (("animals", "2_7_1", "E_9_1"),))
    assert (read.labels, read.measured) == ({"first": {7: "foxes"}}, (None, -2.5, None, None))
    assert list(read.ids) == node_ids(circuit)


def test_the_most_influential_nodes_are_kept(circuit: Circuit) -> None:
    written = attribution_graph(circuit, GraphContext({}, {}))
    spare = [{**written["nodes"][1], "node_id": f"2_{n}_0", "expert": n, "influence": 2.0} for n in range(100, 500)]
    written["nodes"] += spare
    read = read_graph(ForeignGraph.model_validate(written)).circuit
    assert (len(read.nodes), read.num_nodes) == (MAX_NODES, 20)
    assert read.nodes[1].expert == 7
    del written["metadata"]["mxd_circuit"]
    assert read_graph(ForeignGraph.model_validate(written)).circuit.num_nodes == 404


@pytest.mark.parametrize(
    ("place", "change"), [(0, {"feature_type": "embedding"}), (1, {"ctx_idx": 9}), (1, {"layer": "E"})]
)
def test_invalid_graphs_are_rejected(circuit: Circuit, place: int, change: dict[str, object]) -> None:
    written = attribution_graph(circuit, GraphContext({}, {}))
    written["nodes"][place] |= change
    with pytest.raises(UserError, match="Invalid graph"):
        read_graph(ForeignGraph.model_validate(written))
