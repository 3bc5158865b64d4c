"""Routing, effects, search by effect and circuits over HTTP equal the trainer's; circuits on the command line."""

import json
import re
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from mxd.backend.api.app import create_app
from mxd.backend.cli.main import run as mxd
from mxd.backend.queries.examples import HELD_OUT_TEXTS, texts_before
from mxd.backend.queries.experts import WRITTEN_EXAMPLES, written_examples
from mxd.backend.queries.runs import find_run
from mxd.backend.schemas.routing import CircuitResponse, RoutingResponse
from mxd.backend.schemas.steering import FindResponse
from mxd.backend.settings import Settings
from mxd.trainer.analysis.ablation import build_ablations
from mxd.trainer.analysis.circuits.checking import check
from mxd.trainer.analysis.circuits.graph import Circuit, CircuitCheck
from mxd.trainer.analysis.circuits.tracing import trace
from mxd.trainer.analysis.edit_price import edit_price
from mxd.trainer.analysis.effect_search import find, measure
from mxd.trainer.analysis.effects import direct_effects, expert_map, expert_writes
from mxd.trainer.config.analysis import AblationConfig, CircuitConfig, FindConfig
from mxd.trainer.config.steering import Edit
from mxd.trainer.inference.routing import predict, route
from mxd.trainer.inference.units import NUM_CONTROLS, column_values, random_experts
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import delete_ablations, writing
from mxd.trainer.storage.database.tables import SequenceRecord
from mxd.trainer.storage.run import Run
from tests.backend.cli.conftest import Capture, document, output
from tests.backend.conftest import events
from tests.helpers.runs import World

RUN = "/api/runs/small"
PROMPT = "the old fox"
Trainer = tuple[LanguageModel, Run]
"""The language model as the server loads it, and the run."""


@pytest.fixture(scope="module")
def trainer(fitted: World) -> Trainer:
    run = Run.load("small", fitted.data)
    return LanguageModel.load(run.config.language_model, "cpu"), run


def test_routing_and_predictions_equal_the_trainers(live_client: TestClient, trainer: Trainer) -> None:
    answer = live_client.post(f"{RUN}/routing", json={"text": PROMPT}).json()
    expected = route(*trainer, PROMPT)
    RoutingResponse.model_validate(answer)
    assert [token["text"] for token in answer["tokens"]] == [token.text for token in expected.tokens]
    for token, wanted in zip(answer["tokens"], expected.tokens, strict=True):
        assert [expert["expert"] for expert in token["experts"]] == [expert.expert for expert in wanted.experts]
    named = {expert["expert"] for token in answer["tokens"] for expert in token["experts"]}
    assert {int(expert) for expert in answer["experts"]} == named
    assert any(info["density"] and info["top_tokens"] for info in answer["experts"].values())
    answer = live_client.post(f"{RUN}/routing/predictions", json={"text": PROMPT}).json()
    for token, prediction in zip(answer["tokens"], predict(*trainer, PROMPT).tokens, strict=True):
        assert token["kl"] == pytest.approx(prediction.kl, abs=1e-5)
        assert [it["id"] for it in token["predictions"]] == [it.id for it in prediction.predictions]


def test_effects_and_maps_equal_the_trainers(live_client: TestClient, trainer: Trainer) -> None:
    answer = live_client.post(f"{RUN}/routing/effects", json={"text": PROMPT, "position": 2}).json()
    for actual, effect in zip(answer["experts"], direct_effects(*trainer, PROMPT, 2), strict=True):
        assert actual["expert"] == effect.expert
        changes = [token["change"] for token in actual["promoted"] + actual["suppressed"]]
        assert changes == pytest.approx([token.change for token in effect.promoted + effect.suppressed], abs=1e-4)
    shown, wanted = live_client.get(f"{RUN}/experts/3/map").json(), expert_map(*trainer, 3)
    assert shown["stable_rank"] == pytest.approx(wanted.stable_rank, rel=1e-4)
    assert [it["dimension"] for it in shown["largest_scalings"]] == [it.dimension for it in wanted.largest_scalings]


def test_effects_include_those_of_the_random_expert(client: TestClient) -> None:
    detail = client.get("/api/runs/first/experts/4").json()
    row, ablation = detail["row"], detail["ablation"]
    assert detail["few_tokens"] == (row["active_tokens"] < 20)
    assert (detail["small_below"] is None) == (not row["steerability"])
    other = client.get(f"/api/runs/first/experts/{ablation['random_expert']}").json()["ablation"]
    assert ablation["random_expert"] == 5
    assert ablation["random_loss_increase"] == other["loss_increase"] == -0.01
    assert ablation["random_output_share"] == other["output_share"] > 0
    assert [token["change"] for token in ablation["promoted"]] == [0.5, 0.25]
    assert all(token["text"] for token in ablation["promoted"] + ablation["suppressed"])


def active_expert(client: TestClient) -> int:
    page = client.get(f"{RUN}/experts?sort=density&order=desc&limit=1").json()
    return int(page["experts"][0]["expert"])


def test_what_an_expert_writes_equals_the_trainers(live_client: TestClient, fitted: World, trainer: Trainer) -> None:
    expert = active_expert(live_client)
    answer = live_client.get(f"{RUN}/experts/{expert}/writes").json()
    with Session(fitted.database) as session:
        record = find_run(session, "small")
        controls = random_experts(column_values(session, record, ExpertRecord.density), expert, NUM_CONTROLS)
        units = dict(enumerate(column_values(session, record, ExpertRecord.p99).tolist()))
        examples = written_examples(session, record, expert)
    wanted = expert_writes(*trainer, expert, examples, controls, units)
    assert answer["examples"] == len(examples) == WRITTEN_EXAMPLES
    changes = [token["change"] for token in answer["promoted"]]
    assert changes == pytest.approx([token.change for token in wanted.promoted], abs=1e-4)
    assert answer["controls"]["experts"] == controls
    assert answer["controls"]["rise"] == pytest.approx(wanted.controls.rise, abs=1e-4)
    assert answer["controls"]["exceeded"] == (answer["promoted"][0]["change"] > answer["controls"]["rise"])


def test_an_expert_is_measured_on_request_in_steps_that_equal_one(live_client: TestClient, fitted: World) -> None:
    expert = active_expert(live_client)
    url = f"{RUN}/experts/{expert}"
    assert live_client.get(url).json()["ablation"] is None
    try:
        *progress, last = events(live_client.post(f"{url}/ablation").text)
        assert last == {"event": "done"}
        counts = [event["done"] for event in progress]
        assert counts == sorted(set(counts))
        assert all(event["done"] <= event["total"] for event in progress)
        in_steps = live_client.get(url).json()["ablation"]
        assert in_steps["examples"] > 0
        config = AblationConfig(experts=(expert,))
        build_ablations(Run.load("small", fitted.data), config, fitted.language_model, fitted.database)
        assert live_client.get(url).json()["ablation"] == in_steps
    finally:
        with writing(fitted.database) as session:
            delete_ablations(session, find_run(session, "small").id)


TEXTS = {"prompts": ["the old fox"], "wanted": [" sang"], "unrelated": ["red dog"], "probability": 0.1}
REQUEST = {"runs": ["small"], **TEXTS}


def test_found_experts_equal_the_trainers(live_client: TestClient, fitted: World, trainer: Trainer) -> None:
    config = FindConfig.model_validate(TEXTS)
    answer = FindResponse.model_validate(live_client.post("/api/find", json=REQUEST).json())
    expected = find(*trainer, config)
    assert answer.found.probability == pytest.approx(expected.probability, rel=1e-4)
    for actual, wanted in zip(answer.found.experts, expected.experts, strict=True):
        assert actual.edit == wanted.edit and actual.edit.run == "small"
        assert (actual.per_unit, actual.change) == pytest.approx((wanted.per_unit, wanted.change), rel=1e-3, abs=1e-5)
    assert answer.experts["small"].keys() == {each.edit.expert for each in expected.experts}
    groups = [[each.edit.model_dump(mode="json")] for each in answer.found.experts[:2]]
    effects = live_client.post("/api/find/effects", json={**REQUEST, "groups": groups}).json()
    with Session(fitted.database) as session:
        texts = texts_before(session, find_run(session, "small"), (" sang",), trainer[1].tokenizer)
    edits = [(each.edit,) for each in expected.experts[:2]]
    own = measure(*trainer, config.model_copy(update={"held_out": texts}), edits)
    assert tuple(effects["held_out"]) == texts
    measured = "change", "price", "random_price", "held_out_change", "held_out_rises", "alone"
    for effect, other in zip(effects["effects"], own.effects, strict=True):
        expected_values = [getattr(other, name) for name in measured]
        assert [effect[name] for name in measured] == pytest.approx(expected_values, rel=1e-3, abs=1e-5)
    assert effects["random_change"] == pytest.approx(own.random_change, abs=1e-5)
    assert effects["best_first"] == list(own.best_first)


def test_texts_before_a_word_are_stored_ones_that_it_follows(fitted: World, trainer: Trainer) -> None:
    tokenizer = trainer[1].tokenizer
    with Session(fitted.database) as session:
        record = find_run(session, "small")
        packed = session.scalars(select(SequenceRecord.token_ids).where(SequenceRecord.run_id == record.id))
        stored = [tokenizer.decode(np.frombuffer(ids, "<u4").tolist()) for ids in packed]
        texts = texts_before(session, record, (" sang",), tokenizer)
        assert texts_before(session, record, (" unheard of",), tokenizer) == ()
    assert 0 < len(texts) <= HELD_OUT_TEXTS
    assert all(any(f"{text} sang" in other for other in stored) and " sang" not in text for text in texts)
    assert len({text.split()[-1] for text in texts}) == len(texts)


def test_a_price_streams_progress_and_equals_the_trainers(live_client: TestClient, trainer: Trainer) -> None:
    edits = [{"expert": 3, "mode": "add", "strength": 2}]
    *steps, done = events(live_client.post(f"{RUN}/steering/price", json={"edits": edits}).text)
    places = [step["done"] for step in steps]
    assert places == sorted(places) and places[0] == 0 and {step["total"] for step in steps} == {203}
    language_model, run = trainer
    expected = edit_price(language_model, [run], [Edit(expert=3, mode="add", strength=2)])
    assert done["price"]["edits"]["kl"] == pytest.approx(expected.edits.kl, rel=1e-3)
    assert done["price"]["random"]["kl"] == pytest.approx(expected.random.kl, rel=1e-3)
    assert done["price"]["original_ability"] == pytest.approx(asdict(expected.original_ability), abs=0.02)


def test_prices_and_searches_count_in_the_units_of_the_database(
    live_client: TestClient, trainer: Trainer, fitted: World
) -> None:
    """As the texts beside them. The folder has the units of the last database into which the run was indexed."""
    language_model, run = trainer
    edits, p99 = [{"expert": 3, "mode": "add", "strength": 2}], ExpertRecord.p99
    with writing(fitted.database) as session:
        session.execute(update(ExpertRecord).values(p99=p99 * 2))
    try:
        *_, done = events(live_client.post(f"{RUN}/steering/price", json={"edits": edits}).text)
        found = FindResponse.model_validate(live_client.post("/api/find", json=REQUEST).json()).found
    finally:
        with writing(fitted.database) as session:
            session.execute(update(ExpertRecord).values(p99=p99 / 2))
    price = edit_price(language_model, [run], [Edit(expert=3, mode="add", strength=4)])
    assert done["price"]["edits"]["kl"] == pytest.approx(price.edits.kl, rel=1e-3)
    doubled = {"small": {expert: 2 * unit for expert, unit in run.units.items()}}
    wanted = find(language_model, run, FindConfig.model_validate(TEXTS), doubled)
    assert [each.edit for each in found.experts] == [each.edit for each in wanted.experts]
    assert [each.per_unit for each in found.experts] == pytest.approx(
        [each.per_unit for each in wanted.experts], rel=0.01
    )


PATH = "/api/circuits"
ASKED = {"runs": ["small"], "text": PROMPT}


@pytest.fixture(scope="module")
def circuit(trainer: Trainer) -> Circuit:
    return trace(*trainer, CircuitConfig(prompt=PROMPT))


@pytest.fixture(scope="module")
def traced(live_client: TestClient) -> Any:
    """The server's answer."""
    return live_client.post(PATH, json=ASKED).raise_for_status().json()


def test_the_graph_equals_that_of_the_trainer(traced: dict[str, Any], circuit: Circuit) -> None:
    found = CircuitResponse.model_validate(traced)
    assert (found.graph.target, found.graph.label, found.graph.runs) == (circuit.target, circuit.label, ("small",))
    assert found.graph.experts == circuit.experts
    predicted = [node.predicted for node in circuit.nodes]
    assert [node.predicted for node in found.graph.nodes] == pytest.approx(predicted, abs=1e-4)
    assert {node.expert for node in found.graph.nodes[1:]} == set(found.experts["small"])
    assert any(info.top_tokens for info in found.experts["small"].values())


def test_the_check_equals_the_trainers_and_is_saved(
    live_client: TestClient, trainer: Trainer, circuit: Circuit, traced: dict[str, Any]
) -> None:
    graph = traced["graph"]
    answer = live_client.post(f"{PATH}/check", json={**ASKED, "graph": graph})
    assert answer.status_code == 200, answer.text
    found = TypeAdapter(CircuitCheck).validate_python(answer.json())
    own = check(*trainer, CircuitConfig(prompt=PROMPT), circuit)
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
        for (path, body), accept in product(bodies.items(), ("application/json", "text/event-stream")):
            answer = client.post(f"{PATH}{path}", json={**ASKED, **body}, headers={"accept": accept})
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "prompt-too-long"), path


def test_events_report_the_progress_and_then_the_same_result(live_client: TestClient) -> None:
    traced = live_client.post(PATH, json=ASKED).json()
    for path, request in ((PATH, ASKED), (f"{PATH}/check", {**ASKED, "graph": traced["graph"]})):
        answer = live_client.post(path, json=request, headers={"accept": "text/event-stream"})
        assert answer.headers["content-type"].startswith("text/event-stream")
        *progress, done = events(answer.text)
        assert progress and {event["event"] for event in progress} == {"progress"}
        assert all(event["done"] <= event["total"] for event in progress)
        assert done == {"event": "done", "result": live_client.post(path, json=request).json()}


def test_a_changed_circuit_is_rejected(live_client: TestClient, traced: dict[str, Any]) -> None:
    graph = traced["graph"]
    edges = [graph["edges"][0] | {"source": 999}, *graph["edges"][1:]]
    answer = live_client.post(f"{PATH}/check", json={**ASKED, "graph": graph | {"edges": edges}})
    assert answer.status_code == 400
    assert "has no node" in answer.json()["error"]["message"]


def test_the_command_writes_the_circuit(fitted: World, circuit: Circuit, tmp_path: Path, capsys: Capture) -> None:
    words = ["circuit", "small", "--prompt", PROMPT, "--data", str(fitted.data), "--device", "cpu"]
    printed = document(capsys, *words, "--out", str(tmp_path / "out" / "graph.json"))
    assert printed.pop("provenance")["command"].startswith("mxd circuit small ")
    assert printed == json.loads((tmp_path / "out" / "graph.json").read_text("utf-8"))
    assert printed["label"] == circuit.label
    assert len(printed["check"]["measured"]) == len(circuit.nodes)
    said = output(capsys, *words)
    assert said.startswith(f"Target: {circuit.label}, {circuit.value:.3f} logits.")
    assert said.count("predicted") >= len(circuit.experts)
    assert "Kept alone: " in said and "Replacement score" in said
    for flags, start in (
        (["--target", "x", "--against", "y", "--position", "4"], "Target: logit of x minus that of y"),
        (["--target", "x", "--target", "y"], "Target: log-probability of x or y"),
        (["--continuation", " ran"], "Target: log-probability of the continuation ␣ran"),
        (["--target-expert", "small/3"], "Target: activation of expert 3 of small"),
    ):
        said = output(capsys, *words, *flags, "--check", "none")
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
