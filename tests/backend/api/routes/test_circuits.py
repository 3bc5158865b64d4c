"""Circuits over HTTP and on the command line: what the trainer finds, limits in sentences, and clients that leave."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from mxd.backend.api.app import create_app
from mxd.backend.cli.main import run as mxd
from mxd.backend.schemas.routing import CircuitResponse
from mxd.backend.settings import Settings
from mxd.trainer.analysis.circuits.checking import check
from mxd.trainer.analysis.circuits.graph import Circuit, CircuitCheck
from mxd.trainer.analysis.circuits.tracing import trace
from mxd.trainer.config.analysis import CircuitConfig
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run
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


@pytest.fixture(scope="module")
def traced(live_client: TestClient) -> dict[str, Any]:
    """The server's answer."""
    answer = live_client.post(PATH, json=ASKED)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_the_graph_equals_that_of_the_trainer(traced: dict[str, Any], circuit: Circuit) -> None:
    found = CircuitResponse.model_validate(traced)
    assert (found.graph.target, found.graph.label, found.graph.runs) == (circuit.target, circuit.label, ("small",))
    assert found.graph.experts == circuit.experts
    predicted = [node.predicted for node in circuit.nodes]
    assert [node.predicted for node in found.graph.nodes] == pytest.approx(predicted, abs=1e-4)
    assert {node.expert for node in found.graph.nodes[1:]} == set(found.experts["small"])
    assert any(info.top_tokens for info in found.experts["small"].values())


def test_the_check_equals_the_trainers_and_is_saved(
    live_client: TestClient, fitted: World, circuit: Circuit, traced: dict[str, Any]
) -> None:
    graph = traced["graph"]
    answer = live_client.post(f"{PATH}/check", json={**ASKED, "graph": graph})
    assert answer.status_code == 200, answer.text
    found = TypeAdapter(CircuitCheck).validate_python(answer.json())
    own = check(*_parts(fitted), CircuitConfig(prompt=PROMPT), circuit)
    assert found.measured[1:] == pytest.approx(own.measured[1:], abs=1e-4)
    assert found.edges == pytest.approx(own.edges, abs=1e-4)
    assert found.sufficiency.mean == pytest.approx(own.sufficiency.mean, abs=1e-3)
    groups = [[at._asdict()] for at in circuit.experts[:2]]
    request = {**ASKED, "target": graph["target"], "groups": groups}
    single = live_client.post(f"{PATH}/effects", json=request).json()
    assert [effect["target"] for effect in single] == pytest.approx(own.measured[1:3], abs=1e-4)
    body = {"kind": "circuit", "request": ASKED, "graph": graph, "check": answer.json()}
    saved = live_client.post("/api/runs/small/snapshot", json=body).json()["graph"]
    assert [node["measured_effect"] for node in saved["nodes"][1:]] == pytest.approx(found.measured[1:])
    assert [link["weight"] for link in saved["links"]] == pytest.approx([-edge["predicted"] for edge in graph["edges"]])
    assert re.search("fires on|Expert", saved["nodes"][1]["clerp"])


def test_every_circuit_request_keeps_to_the_servers_limit_of_a_prompt(fitted: World, traced: dict[str, Any]) -> None:
    """The limit holds for the role read, which may call all of them."""
    graph = traced["graph"]
    groups = [[{name: graph["nodes"][1][name] for name in ("run", "position", "expert")}]]
    bodies = {"": {}, "/check": {"graph": graph}, "/effects": {"target": graph["target"], "groups": groups}}
    settings = Settings(data=fitted.data, device="cpu", prompt_tokens=5)
    with TestClient(create_app(settings)) as client:
        for path, body in bodies.items():
            answer = client.post(f"{PATH}{path}", json={**ASKED, **body})
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "prompt-too-long"), path


def test_events_report_the_progress_and_then_the_same_result(live_client: TestClient) -> None:
    traced = live_client.post(PATH, json=ASKED).json()
    for path, request in ((PATH, ASKED), (f"{PATH}/check", {**ASKED, "graph": traced["graph"]})):
        answer = live_client.post(path, json=request, headers={"accept": "text/event-stream"})
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line[:5] == "data:"]
        *progress, done = events
        assert progress and {event["event"] for event in progress} == {"progress"}
        assert all(event["done"] < event["total"] for event in progress)
        assert done == {"event": "done", "result": live_client.post(path, json=request).json()}


def test_a_text_that_is_too_long_is_rejected_before_it_is_traced(live_client: TestClient) -> None:
    headers = {"accept": "text/event-stream"}
    answer = live_client.post(PATH, json={**ASKED, "text": "a" * 600}, headers=headers)
    assert answer.status_code == 413
    assert "Shorten the text" in answer.json()["error"]["message"]


def test_a_changed_circuit_is_rejected(live_client: TestClient, traced: dict[str, Any]) -> None:
    graph = traced["graph"]
    edges = [graph["edges"][0] | {"source": 999}, *graph["edges"][1:]]
    answer = live_client.post(f"{PATH}/check", json={**ASKED, "graph": graph | {"edges": edges}})
    assert answer.status_code == 400
    assert "has no node" in answer.json()["error"]["message"]


def test_the_command_writes_the_circuit(fitted: World, circuit: Circuit, tmp_path: Path, capsys: Capture) -> None:
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
    for flags, start in (
        (["--target", "x", "--against", "y", "--position", "4"], "Target: logit of 'x' minus that of 'y'"),
        (["--target", "x", "--target", "y"], "Target: log-probability of 'x' or 'y'"),
        (["--continuation", " ran"], "Target: log-probability of the continuation ' ran'"),
        (["--target-expert", "small/3"], "Target: activation of expert 3 of small"),
    ):
        assert mxd([*words, *flags, "--check", "none"]) == 0
        said = capsys.readouterr().out
        assert said.startswith(start)
        assert "measured" not in said


@pytest.mark.parametrize("has_examples", [True, False])
def test_a_graph_has_the_examples_of_the_database(
    fitted: World, circuit: Circuit, tmp_path: Path, has_examples: bool
) -> None:
    place, graphs = (fitted.data if has_examples else tmp_path) / "mxd.sqlite", tmp_path / "graphs"
    words = ["circuit", "small", "--prompt", PROMPT, "--data", str(fitted.data), "--device", "cpu", "--check", "none"]
    assert mxd([*words, "--database", f"sqlite:///{place}", "--graph", str(graphs)]) == 0
    (listed,) = json.loads((graphs / "graph-metadata.json").read_text("utf-8"))["graphs"]
    graph = json.loads((graphs / f"{listed['slug']}.json").read_text("utf-8"))
    assert len(graph["nodes"]) == len(circuit.nodes)
    assert any(graphs.glob("features/*.json")) == has_examples
