"""Routing, predictions, direct effects and the expert map over HTTP equal the trainer's."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from mxd.backend.schemas.routing import RoutingResponse
from mxd.trainer.analysis.effects import direct_effects, expert_map
from mxd.trainer.inference.routing import predict, route
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run
from tests.helpers.runs import World

RUN = "/api/runs/small"
PROMPT = "the old fox"


def test_routing_equals_that_of_the_trainer(live_client: TestClient, fitted: World) -> None:
    answer = live_client.post(f"{RUN}/routing", json={"text": PROMPT}).json()
    run = Run.load("small", fitted.data)
    expected = route(LanguageModel.load(run.config.language_model, "cpu"), run, PROMPT)
    RoutingResponse.model_validate(answer)
    assert [token["text"] for token in answer["tokens"]] == [token.text for token in expected.tokens]
    for token, wanted in zip(answer["tokens"], expected.tokens, strict=True):
        assert [expert["expert"] for expert in token["experts"]] == [expert.expert for expert in wanted.experts]
    named = {expert["expert"] for token in answer["tokens"] for expert in token["experts"]}
    assert {int(expert) for expert in answer["experts"]} == named
    assert any(info["density"] and info["top_tokens"] for info in answer["experts"].values())


def test_predictions_equal_those_of_the_trainer(live_client: TestClient, fitted: World) -> None:
    answer = live_client.post(f"{RUN}/routing/predictions", json={"text": PROMPT}).json()
    run = Run.load("small", fitted.data)
    expected = predict(LanguageModel.load(run.config.language_model, "cpu"), run, PROMPT)
    assert [token["kl"] for token in answer["tokens"]] == pytest.approx([it.kl for it in expected.tokens], abs=1e-5)
    for token, wanted in zip(answer["tokens"], expected.tokens, strict=True):
        assert [it["id"] for it in token["predictions"]] == [it.id for it in wanted.predictions]


def test_predictions_with_a_repeated_or_unknown_run(live_client: TestClient) -> None:
    answer = live_client.post(f"{RUN}/routing/predictions", json={"text": PROMPT, "others": ["small"]})
    assert answer.status_code == 400
    assert "A run is listed twice" in answer.text
    unknown = live_client.post(f"{RUN}/routing/predictions", json={"text": PROMPT, "others": ["missing"]})
    assert unknown.status_code == 404


def test_effects_equal_those_of_the_trainer(live_client: TestClient, fitted: World) -> None:
    answer = live_client.post(f"{RUN}/routing/effects", json={"text": PROMPT, "position": 2}).json()
    wanted = direct_effects(fitted.language_model, Run.load("small", fitted.data), PROMPT, 2)
    assert [effect["expert"] for effect in answer["experts"]] == [effect.expert for effect in wanted]
    for actual, effect in zip(answer["experts"], wanted, strict=True):
        changes = [token["change"] for token in actual["promoted"] + actual["suppressed"]]
        assert changes == pytest.approx([token.change for token in effect.promoted + effect.suppressed], abs=1e-4)


def test_expert_map(live_client: TestClient, fitted: World) -> None:
    actual = live_client.get(f"{RUN}/experts/3/map").json()
    wanted = expert_map(fitted.language_model, Run.load("small", fitted.data), 3)
    assert actual["stable_rank"] == pytest.approx(wanted.stable_rank, rel=1e-4)
    assert [one["dimension"] for one in actual["largest_scalings"]] == [
        one.dimension for one in wanted.largest_scalings
    ]
    assert live_client.get(f"{RUN}/experts/4000/map").status_code == 404
