"""Circuits over HTTP and on the command line: what the trainer finds, limits in sentences, and clients that leave."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from mxd.backend.api.app import create_app
from mxd.backend.api.dependencies import Services
from mxd.backend.cli.main import run as mxd
from mxd.backend.plots.circuit_page import circuit_page
from mxd.backend.schemas import CircuitAttentionResponse, CircuitEffectsResponse, CircuitResponse
from mxd.backend.settings import Settings
from mxd.trainer.analysis.circuits.agreement import MIN_CORRELATED, ablate_each_expert
from mxd.trainer.analysis.circuits.edge_attention import explain_circuit_edges
from mxd.trainer.analysis.circuits.graph import Circuit
from mxd.trainer.analysis.circuits.tracing import trace
from mxd.trainer.config.analysis import CircuitConfig
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run
from tests.backend.api.test_event_stream import Asking
from tests.helpers.runs import World

PATH = "/api/circuits"
PROMPT = "the old fox"
ASKED = {"runs": ["small"], "text": PROMPT}
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def circuit(fitted: World) -> Circuit:
    """The trainer's own."""
    return trace(*_parts(fitted), CircuitConfig(prompt=PROMPT))


def _parts(world: World) -> tuple[LanguageModel, Run]:
    run = Run.load("small", world.data)
    return LanguageModel.load(run.config.language_model, "cpu"), run


def test_the_graph_equals_that_of_the_trainer(live_client: TestClient, circuit: Circuit) -> None:
    answer = live_client.post(PATH, json=ASKED)
    assert answer.status_code == 200, answer.text
    found = CircuitResponse.model_validate(answer.json())
    assert found.graph.target.id == circuit.target.id
    assert found.graph.runs == ("small",)
    wanted = [(node.kind, node.position, node.layer, node.expert) for node in circuit.nodes]
    assert [(node.kind, node.position, node.layer, node.expert) for node in found.graph.nodes] == wanted
    assert [edge.weight for edge in found.graph.edges] == pytest.approx([it.weight for it in circuit.edges], abs=1e-4)
    experts = {node.expert for node in found.graph.nodes if node.kind == "expert"}
    assert experts == set(found.experts["small"])
    assert any(info.top_tokens for info in found.experts["small"].values())


def test_another_target_and_fewer_nodes(live_client: TestClient) -> None:
    found = live_client.post(PATH, json={**ASKED, "target": 5, "position": 3, "nodes": 6, "errors": "dropped"}).json()
    assert found["graph"]["target"]["id"] == 5
    assert len(found["graph"]["tokens"]) == 4
    assert len(found["graph"]["nodes"]) <= 7
    assert {node["kind"] for node in found["graph"]["nodes"]}.isdisjoint({"error"})


def test_effects_equal_those_of_the_trainer(live_client: TestClient, fitted: World, circuit: Circuit) -> None:
    groups = [[switch._asdict()] for switch in circuit.experts]
    answer = live_client.post(f"{PATH}/effects", json={**ASKED, "target": circuit.target.id, "groups": groups})
    assert answer.status_code == 200, answer.text
    found = CircuitEffectsResponse.model_validate(answer.json())
    wanted = ablate_each_expert(*_parts(fitted), CircuitConfig(prompt=PROMPT), circuit)
    for effect, own in zip(found.effects, wanted, strict=True):
        assert (effect.predicted, effect.measured) == pytest.approx((own.predicted, own.measured), abs=1e-4)
    assert (found.agreement.correlation is None) == (len(groups) < MIN_CORRELATED)
    single = live_client.post(f"{PATH}/effects", json={**ASKED, "groups": groups[:1]}).json()
    assert single["agreement"]["correlation"] is None


def test_the_attention_of_an_edge_equals_that_of_the_trainer(
    live_client: TestClient, fitted: World, circuit: Circuit
) -> None:
    edge = circuit.edges_between_tokens[0]
    ends = {
        name: {"kind": node.kind, "position": node.position, "layer": node.layer, "expert": node.expert}
        for name, node in (("source", circuit.nodes[edge.source]), ("edge_target", circuit.nodes[edge.target]))
    }
    answer = live_client.post(f"{PATH}/attention", json={**ASKED, "target": circuit.target.id, **ends})
    assert answer.status_code == 200, answer.text
    found = CircuitAttentionResponse.model_validate(answer.json())
    (own,) = explain_circuit_edges(*_parts(fitted), CircuitConfig(prompt=PROMPT), circuit, [edge])
    assert found.attention.weight == pytest.approx(edge.weight, abs=1e-4)
    assert [(part.layer, part.head) for part in found.attention.heads] == [(it.layer, it.head) for it in own.heads]
    scores = [part.score for part in found.attention.heads if part.score is not None]
    listed = {it.expert for score in scores for it in (*score.query_sources, *score.key_sources) if it.run is not None}
    assert listed - {None} == set(found.experts.get("small", {}))
    unknown = {**ends, "source": {"kind": "expert", "position": 1, "layer": 0, "expert": 10**6}}
    refused = live_client.post(f"{PATH}/attention", json={**ASKED, **unknown})
    assert refused.status_code == 400
    assert "Choose a node of the circuit" in refused.json()["error"]["message"]


def test_a_saved_graph_opens_unchanged(live_client: TestClient) -> None:
    traced = live_client.post(PATH, json=ASKED).json()
    saved = live_client.post(f"{PATH}/graph", json=ASKED).json()
    saved["qParams"] |= {"pinnedIds": traced["ids"][:2], "supernodes": [["pair", *traced["ids"][:2]]]}
    opened = live_client.post(f"{PATH}/read", json=saved).json()
    assert (opened["ids"], opened["prompt"], opened["pinned"]) == (traced["ids"], PROMPT, traced["ids"][:2])
    assert opened["agreement"]["correlation"] is None
    assert opened["supernodes"] == [{"name": "pair", "nodes": traced["ids"][:2]}]
    for name in ("kind", "run", "expert", "position", "effect", "direct", "influence"):
        assert [node[name] for node in opened["graph"]["nodes"]] == [node[name] for node in traced["graph"]["nodes"]]
    edges = [
        {(edge["source"], edge["target"], edge["weight"]) for edge in it["graph"]["edges"]} for it in (opened, traced)
    ]
    assert edges[0] == edges[1]


@pytest.mark.parametrize(
    ("path", "changes", "status", "words"),
    [
        (PATH, {"runs": ["none"]}, 404, "Unknown run 'none'"),
        (PATH, {"runs": ["small", "small"]}, 400, "listed twice"),
        (PATH, {"text": ""}, 400, "text is empty"),
        (PATH, {"position": 12}, 400, "Unknown token position 12"),
        (PATH, {"target": 999}, 400, "Unknown target token 999"),
        (PATH, {"text": "a" * 600}, 413, "Shorten the text"),
        (PATH, {"nodes": 1}, 422, "nodes"),
        (f"{PATH}/effects", {"groups": []}, 422, "groups"),
        (f"{PATH}/effects", {"groups": [[{"run": "other", "position": 1, "expert": 1}]]}, 400, "Unknown run 'other'"),
        (f"{PATH}/effects", {"groups": [[{"run": "small", "position": 99, "expert": 1}]]}, 400, "token position 99"),
        (f"{PATH}/effects", {"groups": [[{"run": "small", "position": 1, "expert": 10**6}]]}, 400, "active"),
    ],
)
def test_invalid_requests_are_errors(
    live_client: TestClient, path: str, changes: dict[str, Any], status: int, words: str
) -> None:
    answer = live_client.post(path, json={**ASKED, **changes})
    assert answer.status_code == status, answer.text
    assert words in answer.json()["error"]["message"]


@pytest.fixture
def app(fitted: World) -> Iterator[FastAPI]:
    """A server of the test's own."""
    it = create_app(Settings(data=fitted.data, device="cpu"))
    yield it
    services: Services = it.state.services
    services.live.close()
    services.database.dispose()


def test_disconnecting_cancels_tracing(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, gone, ended = threading.Event(), threading.Event(), threading.Event()

    def endless(_lm: Any, _runs: Any, _config: Any, callbacks: Any) -> None:
        begun.set()
        try:
            while not gone.wait(0.01):
                callbacks.check_cancelled()
        finally:
            ended.set()

    monkeypatch.setattr("mxd.trainer.analysis.circuits.tracing.trace", endless)

    async def leave() -> None:
        asking = Asking(app, PATH, ASKED)
        assert await asyncio.to_thread(begun.wait, 20)
        asking.left.set()
        assert await asking.status() == 499
        assert await asyncio.to_thread(ended.wait, 20)

    try:
        asyncio.run(leave())
    finally:
        gone.set()


def test_the_command_prints_and_writes_the_circuit(
    fitted: World, circuit: Circuit, tmp_path: Path, capsys: Capture
) -> None:
    words = ["circuit", "small", "--prompt", PROMPT, "--data", str(fitted.data), "--device", "cpu"]
    assert mxd([*words, "--check", "--out", str(tmp_path / "out" / "graph.json"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "out" / "graph.json").read_text("utf-8"))
    assert printed["target"]["id"] == circuit.target.id
    assert len(printed["checked"]) == len(circuit.experts)
    assert (printed["agreement"]["correlation"] is None) == (len(circuit.experts) < MIN_CORRELATED)
    page_words = ["--attention", "2", "--out", str(tmp_path / "graph.html")]
    assert mxd([*words, "--target", "x", "--position", "4", *page_words]) == 0
    said = capsys.readouterr().out
    assert "looks from" in said
    assert said.startswith("'x' has probability")
    assert "of the influence" in said
    page = (tmp_path / "graph.html").read_text("utf-8")
    assert page.count("<circle") >= 1
    assert page.count("looks from") >= 2


@pytest.mark.parametrize(("database", "has_examples"), [("mxd.sqlite", True), ("another.sqlite", False)])
def test_a_graph_has_the_examples_that_the_database_has(
    fitted: World, circuit: Circuit, tmp_path: Path, database: str, has_examples: bool
) -> None:
    place = fitted.data / database if has_examples else tmp_path / database
    words = ["circuit", "small", "--prompt", PROMPT, "--data", str(fitted.data), "--device", "cpu"]
    assert mxd([*words, "--database", f"sqlite:///{place}", "--graph", str(tmp_path / "graphs")]) == 0
    (listed,) = json.loads((tmp_path / "graphs" / "graph-metadata.json").read_text("utf-8"))["graphs"]
    graph = json.loads((tmp_path / "graphs" / f"{listed['slug']}.json").read_text("utf-8"))
    assert len(graph["nodes"]) == len(circuit.nodes)
    assert any((tmp_path / "graphs").glob("features/*.json")) == has_examples


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--out", "graph.png"], "Supported file types: .json, .html"),
        (["--target", "two"], "is 3 tokens. Give one"),
        (["--target", "400"], "Unknown target token 400"),
        (["--nodes", "1"], "Invalid --nodes: '1'. Input should be greater than or equal to 2"),
    ],
)
def test_the_command_rejects_invalid_input(fitted: World, capsys: Capture, more: list[str], sentence: str) -> None:
    assert mxd(["circuit", "small", "--prompt", PROMPT, "--data", str(fitted.data), "--device", "cpu", *more]) == 2
    assert sentence in capsys.readouterr().err


def test_the_page_contains_the_circuit_and_escapes_text(circuit: Circuit) -> None:
    hostile = circuit.tokens[1].__class__(1, "<script>", start=False)
    changed = circuit.__class__(**{**vars(circuit), "tokens": (circuit.tokens[0], hostile, *circuit.tokens[2:])})
    page = circuit_page(changed)
    assert "<script>" not in page
    assert page.count("<path") == len(circuit.edges)
    assert page.count("<tr>") == len(circuit.edges) + len(circuit.nodes) - 1 + 2
    assert "http" not in page
