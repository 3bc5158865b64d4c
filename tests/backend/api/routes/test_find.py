"""Search by effect over HTTP equals the trainer's."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from mxd.backend.schemas.steering import CombinationResponse, EffectsOfEditsResponse, FindResponse
from mxd.trainer.analysis.effect_search import combine, find, measure
from mxd.trainer.config.analysis import FindConfig
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run
from tests.helpers.runs import World

TEXTS = {"prompts": ["the old fox"], "wanted": [" sang"], "unrelated": ["red dog"], "probability": 0.1}
REQUEST = {"runs": ["small"], **TEXTS}


def test_experts_effects_and_combination_equal_those_of_the_trainer(live_client: TestClient, fitted: World) -> None:
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
    measured = live_client.post("/api/find/effects", json={**REQUEST, "groups": groups}).json()
    effects = EffectsOfEditsResponse.model_validate(measured).effects
    edits = [(each.edit,) for each in expected.experts[:2]]
    for effect, other in zip(effects, measure(language_model, run, config, edits), strict=True):
        assert (effect.change, effect.price, effect.random_price) == pytest.approx(
            (other.change, other.price, other.random_price), rel=1e-3, abs=1e-6
        )
    together = CombinationResponse.model_validate(live_client.post("/api/find/combination", json=REQUEST).json())
    assert together.combination.edits == combine(language_model, run, config).edits


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


def test_only_added_edits_are_measured(live_client: TestClient) -> None:
    groups = [[{"expert": 3, "mode": "scale", "strength": 2}]]
    answer = live_client.post("/api/find/effects", json={**REQUEST, "groups": groups})
    assert answer.status_code == 400
    assert "only, not for small/3:scale:2" in answer.text
