"""Ablation effects of an expert over HTTP."""

from __future__ import annotations

import json

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

from mxd.backend.queries.ablation import WRITTEN_EXAMPLES, exceeds, random_expert, written_examples
from mxd.backend.queries.runs import find_run
from mxd.trainer.analysis.ablation import build_ablations
from mxd.trainer.analysis.effects import expert_writes
from mxd.trainer.analysis.results import TokenEffect
from mxd.trainer.config import AblationConfig
from mxd.trainer.storage.database.open import delete_ablations, writing
from mxd.trainer.storage.run import Run
from tests.helpers.runs import World


def test_effects_include_those_of_the_random_expert(client: TestClient) -> None:
    ablation = client.get("/api/runs/first/experts/4").json()["ablation"]
    other = client.get(f"/api/runs/first/experts/{ablation['random_expert']}").json()["ablation"]
    assert ablation["random_expert"] == 5
    assert ablation["random_loss_increase"] == other["loss_increase"] == -0.01
    assert ablation["random_output_share"] == other["output_share"] > 0
    assert [token["change"] for token in ablation["promoted"]] == [0.5, 0.25]
    assert ablation["exceeds_random"] == (2 * other["promoted"][0]["change"] <= 0.5)
    assert all(token["text"] for token in ablation["promoted"] + ablation["suppressed"])


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [([0.4, 0.1], [0.2], True), ([0.39], [0.2], False), ([0.1], [], True), ([], [], False), ([-0.1], [-0.2], False)],
)
def test_an_effect_says_more_if_it_is_twice_a_random_experts(
    own: list[float], other: list[float], expected: bool
) -> None:
    tokens = [tuple(TokenEffect(id=0, text="x", change=change) for change in changes) for changes in (own, other)]
    assert exceeds(*tokens) is expected


def active_expert(client: TestClient) -> int:
    page = client.get("/api/runs/small/experts?sort=density&order=desc&limit=1").json()
    return int(page["experts"][0]["expert"])


def test_what_an_expert_writes_is_computed_beside_a_random_expert(live_client: TestClient, fitted: World) -> None:
    expert = active_expert(live_client)
    answer = live_client.get(f"/api/runs/small/experts/{expert}/writes").json()
    run = Run.load("small", fitted.data)
    with Session(fitted.database) as session:
        record = find_run(session, "small")
        other = random_expert(session, record, expert)
        assert other is not None
        examples = [written_examples(session, record, one) for one in (expert, other)]
    assert len(examples[0]) == WRITTEN_EXAMPLES
    assert other != expert
    for key, number, of_expert in (("writes", expert, examples[0]), ("random", other, examples[1])):
        (wanted,) = expert_writes(fitted.language_model, run, [(number, of_expert)])
        assert answer[key]["examples"] == len(of_expert)
        changes = [token["change"] for token in answer[key]["promoted"]]
        assert changes == pytest.approx([token.change for token in wanted.promoted], abs=1e-4)
    largest, random_largest = (answer[key]["promoted"][0]["change"] for key in ("writes", "random"))
    assert answer["exceeds_random"] == (largest >= 2 * random_largest)


def test_an_expert_is_measured_on_request(live_client: TestClient, fitted: World) -> None:
    expert = active_expert(live_client)
    url = f"/api/runs/small/experts/{expert}"
    assert live_client.get(url).json()["ablation"] is None
    try:
        lines = live_client.post(f"{url}/ablation").text.splitlines()
        *progress, last = (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))
        assert last == {"event": "done"}
        counts = [event["done"] for event in progress]
        assert counts == sorted(set(counts))
        assert all(event["done"] < event["total"] for event in progress)
        assert live_client.get(url).json()["ablation"]["examples"] > 0
    finally:
        with writing(fitted.database) as session:
            delete_ablations(session, find_run(session, "small").id)


def test_measuring_in_steps_equals_measuring_at_once(live_client: TestClient, fitted: World) -> None:
    expert = active_expert(live_client)
    url = f"/api/runs/small/experts/{expert}"
    try:
        live_client.post(f"{url}/ablation")
        in_steps = live_client.get(url).json()["ablation"]
        config = AblationConfig(experts=(expert,))
        build_ablations(Run.load("small", fitted.data), config, fitted.language_model, fitted.database)
        assert live_client.get(url).json()["ablation"] == in_steps
    finally:
        with writing(fitted.database) as session:
            delete_ablations(session, find_run(session, "small").id)
