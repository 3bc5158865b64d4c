"""Circuits over HTTP and on the command line: what the trainer finds, limits in sentences, and clients that leave."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from mxd.backend.cli.main import run as mxd
from mxd.backend.schemas.routing import CircuitResponse
from mxd.trainer.analysis.circuits.checking import check
from mxd.trainer.analysis.circuits.graph import Circuit, CircuitCheck
from mxd.trainer.analysis.circuits.tracing import trace
from mxd.trainer.config.analysis import CircuitConfig
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run
from tests.backend.api.test_event_stream import Asking, app  # noqa: F401  a fixture
from tests.backend.cli.words import Capture
from tests.helpers.runs import World

PATH = "/api/circuits"
PROMPT = "the old fox"
ASKED = {"runs": ["small"], "text": PROMPT}


@pytest.fixture(scope="module")
def circuit(fitted: World) -> Circuit:
    return trace(*_parts(fitted), CircuitConfig(prompt=PROMPT))


def _parts(world: World) -> tuple[LanguageModel, Run]:
    run = Run.load("small", world.data)
    return LanguageModel.load(run.config.language_model, "cpu"), run


def test_the_graph_equals_that_of_the_trainer(live_client: TestClient, circuit: Circuit) -> None:
    answer = live_client.post(PATH, json=ASKED)
    assert answer.status_code == 200, answer.text
    found = CircuitResponse.model_validate(answer.json())
    assert (found.graph.target, found.graph.label, found.graph.runs) == (circuit.target, circuit.label, ("small",))
    assert found.graph.experts == circuit.experts
    predicted = [node.predicted for node in circuit.nodes]
    assert [node.predicted for node in found.graph.nodes] == pytest.approx(predicted, abs=1e-4)
    assert {node.expert for node in found.graph.nodes[1:]} == set(found.experts["small"])
    assert any(info.top_tokens for info in found.experts["small"].values())


def test_the_check_equals_that_of_the_trainer(live_client: TestClient, fitted: World, circuit: Circuit) -> None:
    traced = live_client.post(PATH, json=ASKED).json()
    answer = live_client.post(f"{PATH}/check", json={**ASKED, "graph": traced["graph"]})
    assert answer.status_code == 200, answer.text
    found = TypeAdapter(CircuitCheck).validate_python(answer.json())
    own = check(*_parts(fitted), CircuitConfig(prompt=PROMPT), circuit)
    assert found.measured[1:] == pytest.approx(own.measured[1:], abs=1e-4)
    assert found.edges == pytest.approx(own.edges, abs=1e-4)
    assert found.sufficiency.mean == pytest.approx(own.sufficiency.mean, abs=1e-3)
    groups = [[at._asdict()] for at in circuit.experts[:2]]
    request = {**ASKED, "target": traced["graph"]["target"], "groups": groups}
    single = live_client.post(f"{PATH}/effects", json=request).json()
    assert [effect["target"] for effect in single] == pytest.approx(own.measured[1:3], abs=1e-4)


def test_a_saved_graph_has_labels_and_measured_effects(live_client: TestClient) -> None:
    graph = live_client.post(PATH, json=ASKED).json()["graph"]
    checked = live_client.post(f"{PATH}/check", json={**ASKED, "graph": graph}).json()
    body = {"kind": "circuit", "request": ASKED, "graph": graph, "check": checked}
    saved = live_client.post("/api/runs/small/snapshot", json=body).json()["graph"]
    assert [node["measured_effect"] for node in saved["nodes"][1:]] == pytest.approx(checked["measured"][1:])
    assert [link["weight"] for link in saved["links"]] == pytest.approx([-edge["predicted"] for edge in graph["edges"]])
    assert "fires on" in saved["nodes"][1]["clerp"] or "Expert" in saved["nodes"][1]["clerp"]


def test_a_changed_circuit_is_rejected(live_client: TestClient) -> None:
    graph = live_client.post(PATH, json=ASKED).json()["graph"]
    graph["edges"][0]["source"] = 999
    answer = live_client.post(f"{PATH}/check", json={**ASKED, "graph": graph})
    assert answer.status_code == 400
    assert "has no node" in answer.json()["error"]["message"]


def test_disconnecting_cancels_tracing(
    app: FastAPI,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    assert mxd([*words, "--out", str(tmp_path / "out" / "graph.json"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed.pop("provenance")["command"].startswith("mxd circuit small ")
    assert printed == json.loads((tmp_path / "out" / "graph.json").read_text("utf-8"))
    assert printed["label"] == circuit.label
    assert len(printed["check"]["measured"]) == len(circuit.nodes)
    assert mxd(words) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"Target: {circuit.label}, {circuit.value:.3f} logits.")
    assert said.count("predicted") >= len(circuit.experts)
    assert "Sufficiency: the shown experts alone keep" in said
    assert mxd([*words, "--target", "x", "--against", "y", "--position", "4", "--check", "none"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Target: logit of 'x' minus that of 'y'")
    assert "measured" not in said


@pytest.mark.parametrize(
    ("flags", "start"),
    [
        (["--target", "x", "--target", "y"], "Target: log-probability of 'x' or 'y'"),
        (["--continuation", " ran"], "Target: log-probability of the continuation ' ran'"),
        (["--target-expert", "small/3"], "Target: activation of expert 3 of small"),
    ],
)
def test_targets_of_the_command(fitted: World, capsys: Capture, flags: list[str], start: str) -> None:
    words = ["circuit", "small", "--prompt", PROMPT, "--data", str(fitted.data), "--device", "cpu", "--check", "none"]
    assert mxd([*words, *flags]) == 0
    assert capsys.readouterr().out.startswith(start)


@pytest.mark.parametrize(("database", "has_examples"), [("mxd.sqlite", True), ("another.sqlite", False)])
def test_a_graph_has_the_examples_that_the_database_has(
    fitted: World, circuit: Circuit, tmp_path: Path, database: str, has_examples: bool
) -> None:
    place = fitted.data / database if has_examples else tmp_path / database
    words = ["circuit", "small", "--prompt", PROMPT, "--data", str(fitted.data), "--device", "cpu"]
    assert (
        mxd([*words, "--database", f"sqlite:///{place}", "--check", "none", "--graph", str(tmp_path / "graphs")]) == 0
    )
    (listed,) = json.loads((tmp_path / "graphs" / "graph-metadata.json").read_text("utf-8"))["graphs"]
    graph = json.loads((tmp_path / "graphs" / f"{listed['slug']}.json").read_text("utf-8"))
    assert len(graph["nodes"]) == len(circuit.nodes)
    assert any((tmp_path / "graphs").glob("features/*.json")) == has_examples
