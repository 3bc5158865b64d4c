"""Search by effect over HTTP equals the trainer's."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from fastapi.testclient import TestClient

from mxd.backend.schemas.steering import FindResponse
from mxd.trainer.analysis.edit_price import edit_price
from mxd.trainer.analysis.effect_search import find, measure
from mxd.trainer.config import Edit
from mxd.trainer.config.analysis import FindConfig
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run
from tests.helpers.runs import World

TEXTS = {"prompts": ["the old fox"], "wanted": [" sang"], "unrelated": ["red dog"], "probability": 0.1}
REQUEST = {"runs": ["small"], **TEXTS}


def test_experts_and_effects_equal_those_of_the_trainer(live_client: TestClient, fitted: World) -> None:
    run, config = Run.load("small", fitted.data), FindConfig.model_validate(TEXTS)
    language_model = LanguageModel.load(run.config.language_model, "cpu")
    answer = FindResponse.model_validate(live_client.post("/api/find", json=REQUEST).json())
    expected = find(language_model, run, config)
    assert answer.found.probability == pytest.approx(expected.probability, rel=1e-4)
    for actual, wanted in zip(answer.found.experts, expected.experts, strict=True):
        assert actual.edit == wanted.edit and actual.edit.run == "small"
        assert (actual.per_unit, actual.change) == pytest.approx((wanted.per_unit, wanted.change), rel=1e-3, abs=1e-5)
    assert answer.experts["small"].keys() == {each.edit.expert for each in expected.experts}
    groups = [[each.edit.model_dump(mode="json")] for each in answer.found.experts[:2]]
    effects = live_client.post("/api/find/effects", json={**REQUEST, "groups": groups}).json()
    edits = [(each.edit,) for each in expected.experts[:2]]
    for effect, other in zip(effects, measure(language_model, run, config, edits), strict=True):
        assert (effect["change"], effect["price"], effect["random_price"]) == pytest.approx(
            (other.change, other.price, other.random_price), rel=1e-3, abs=1e-6
        )


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"wanted": []}, 422, "at least one wanted or unwanted text"),
        ({"prompts": []}, 400, "prompts"),
        ({"runs": ["missing"]}, 404, "missing"),
        ({"prompts": ["the " * 2000]}, 413, "too long"),
    ],
)
def test_errors(live_client: TestClient, change: dict[str, object], status: int, message: str) -> None:
    answer = live_client.post("/api/find", json={**REQUEST, **change})
    assert (answer.status_code, message in answer.text) == (status, True), answer.text


def test_the_price_of_edits_streams_progress_and_equals_the_trainers(live_client: TestClient, fitted: World) -> None:
    edits = [{"expert": 3, "mode": "add", "strength": 2}]
    text = live_client.post("/api/runs/small/steering/price", json={"edits": edits}).text
    *steps, done = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]
    places = [step["done"] for step in steps]
    assert places == sorted(places) and places[0] == 0 and {step["total"] for step in steps} == {203}
    run = Run.load("small", fitted.data)
    language_model = LanguageModel.load(run.config.language_model, "cpu")
    expected = edit_price(language_model, [run], [Edit(expert=3, mode="add", strength=2)])
    assert done["price"]["edits"]["kl"] == pytest.approx(expected.edits.kl, rel=1e-3)
    assert done["price"]["random"]["kl"] == pytest.approx(expected.random.kl, rel=1e-3)
    assert done["price"]["original_ability"] == pytest.approx(asdict(expected.original_ability), abs=0.02)


@pytest.mark.parametrize(
    ("path", "edit", "status", "message"),
    [
        ("small", "3:add:1@generated", 400, "with a condition cannot be measured"),
        ("small", "missing/3:add:1", 404, "missing"),
        ("missing", "3:add:1", 404, "missing"),
        ("small", "99999:add:1", 400, "Unknown expert 99999"),
    ],
)
def test_errors_of_prices(live_client: TestClient, path: str, edit: str, status: int, message: str) -> None:
    body = {"edits": [Edit.model_validate(edit).model_dump(mode="json")]}
    answer = live_client.post(f"/api/runs/{path}/steering/price", json=body)
    assert (answer.status_code, message in answer.text) == (status, True), answer.text
