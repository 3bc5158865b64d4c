"""Circuits in the attribution graph format: the fields of nodes and links, with and without measured effects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mxd.backend.export.attribution_graph import GraphContext, attribution_graph, write_graph
from mxd.trainer.analysis.circuits.graph import (
    AblationEffect,
    Agreement,
    Circuit,
    CircuitCheck,
    CircuitEdge,
    CircuitNode,
    CircuitToken,
    GraphScores,
    NextToken,
    Sufficiency,
)
from mxd.trainer.config.analysis import ExpertTarget, TokenTarget

REQUIRED = {"node_id", "feature", "layer", "ctx_idx", "feature_type", "jsNodeId", "clerp"}
AGREEMENT = Agreement(2, None, 1.0, None, 0.5)
CHECK = CircuitCheck(
    measured=(None, -2.5, 0.8),
    edges=(-2.5, 0.8, -0.4),
    left_top_k=(False, False, False),
    experts=AGREEMENT,
    between=AGREEMENT,
    joint=AblationEffect(-2.0, -1.9),
    sufficiency=Sufficiency(1.0, 3.0, 3.5, 2.0, 8, 1.1),
    scores=GraphScores(0.1, 0.5),
)


@pytest.fixture
def circuit() -> Circuit:
    """Expert 4 of layer 1 raises the score of expert 7 of layer 2, which raises the target; it lowers it otherwise."""
    return Circuit(
        runs=("first", "second"),
        layers=(1, 2),
        tokens=(CircuitToken(0, "<s>", True), CircuitToken(9, "The", False)),
        prompt_tokens=2,
        target=TokenTarget(token=5),
        label="logit of ' fox'",
        value=4.0,
        candidates=(NextToken(5, " fox", 0.5, 4.0),),
        nodes=(
            CircuitNode("target", 1, None, None, None, None, 4.0, "gradient"),
            CircuitNode("expert", 1, 2, "second", 7, 2.0, -3.0, "path"),
            CircuitNode("expert", 1, 1, "first", 4, 1.5, 1.0, "gradient"),
        ),
        edges=(CircuitEdge(1, 0, -3.0, False), CircuitEdge(2, 0, 1.0, False), CircuitEdge(2, 1, -0.5, False)),
        active=40,
        retained=0.4,
    )


def test_nodes_and_links_have_both_effects(circuit: Circuit, tmp_path: Path) -> None:
    graph = attribution_graph(circuit, GraphContext({"second": {7: "foxes"}}, CHECK))
    assert all(node.keys() >= REQUIRED for node in graph["nodes"])
    target, late, early = graph["nodes"]
    assert (target["feature_type"], target["feature"], target["token_prob"]) == ("logit", 5, 0.5)
    assert target["clerp"].endswith("(p=0.500)"), "circuit-tracer's page reads the probability from here"
    assert late["clerp"] == "foxes (ablation: predicted -3.000, measured -2.500)"
    assert (early["predicted_effect"], early["measured_effect"]) == (1.0, 0.8)
    assert [(link["source"], link["target"], link["weight"]) for link in graph["links"]] == [
        ("2_7_1", "4_5_1", 3.0),
        ("1_4_1", "4_5_1", -1.0),
        ("1_4_1", "2_7_1", 0.5),
    ]
    assert [link["measured_effect"] for link in graph["links"]] == [-2.5, 0.8, -0.4]
    assert [node["influence"] for node in graph["nodes"]] == [None, 0.75, 1.0]
    assert graph["metadata"]["mxd_circuit"]["active_experts"] == 40
    for _ in range(2):  # writing again replaces the entry
        path = write_graph(graph, tmp_path)
    assert [it["slug"] for it in json.loads((tmp_path / "graph-metadata.json").read_text())["graphs"]] == [path.stem]


def test_a_circuit_without_a_check_has_predictions_only(circuit: Circuit) -> None:
    graph = attribution_graph(circuit, GraphContext({}))
    assert "measured" not in json.dumps(graph)
    assert graph["nodes"][1]["clerp"] == "Expert 7 (ablation: predicted -3.000)"


def test_an_expert_as_target_takes_the_most_probable_token_as_its_number(circuit: Circuit) -> None:
    changed = Circuit(**{**vars(circuit), "target": ExpertTarget(run="second", expert=3), "label": "activation"})
    assert attribution_graph(changed, GraphContext({}))["nodes"][0]["feature"] == 5
