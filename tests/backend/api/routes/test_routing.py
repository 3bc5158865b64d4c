"""Routing, predictions, effects, ablation and search by effect over HTTP equal the trainer's."""

import json
from dataclasses import asdict
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update
from sqlalchemy.orm import Session

from mxd.backend.queries.experts import WRITTEN_EXAMPLES, written_examples
from mxd.backend.queries.runs import find_run
from mxd.backend.schemas.routing import RoutingResponse
from mxd.backend.schemas.steering import FindResponse
from mxd.trainer.analysis.ablation import build_ablations
from mxd.trainer.analysis.edit_price import edit_price
from mxd.trainer.analysis.effect_search import find, measure
from mxd.trainer.analysis.effects import direct_effects, expert_map, expert_writes
from mxd.trainer.config import AblationConfig, Edit
from mxd.trainer.config.analysis import FindConfig
from mxd.trainer.inference.routing import predict, route
from mxd.trainer.inference.units import column_values, random_experts
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import delete_ablations, writing
from mxd.trainer.storage.run import Run
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
    ablation = client.get("/api/runs/first/experts/4").json()["ablation"]
    other = client.get(f"/api/runs/first/experts/{ablation['random_expert']}").json()["ablation"]
    assert ablation["random_expert"] == 5
    assert ablation["random_loss_increase"] == other["loss_increase"] == -0.01
    assert ablation["random_output_share"] == other["output_share"] > 0
    assert [token["change"] for token in ablation["promoted"]] == [0.5, 0.25]
    assert ablation["exceeds_random"] == (2 * other["promoted"][0]["change"] <= 0.5)
    assert all(token["text"] for token in ablation["promoted"] + ablation["suppressed"])


def active_expert(client: TestClient) -> int:
    page = client.get(f"{RUN}/experts?sort=density&order=desc&limit=1").json()
    return int(page["experts"][0]["expert"])


def events(stream: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in stream.splitlines() if line.startswith("data: ")]


def test_what_an_expert_writes_equals_the_trainers(live_client: TestClient, fitted: World, trainer: Trainer) -> None:
    expert = active_expert(live_client)
    answer = live_client.get(f"{RUN}/experts/{expert}/writes").json()
    with Session(fitted.database) as session:
        record = find_run(session, "small")
        (other,) = random_experts(column_values(session, record, ExpertRecord.density), expert)
        examples = {one: written_examples(session, record, one) for one in (expert, other)}
    assert len(examples[expert]) == WRITTEN_EXAMPLES
    for key, (number, of_expert) in zip(("writes", "random"), examples.items(), strict=True):
        (wanted,) = expert_writes(*trainer, [(number, of_expert)])
        assert answer[key]["examples"] == len(of_expert)
        changes = [token["change"] for token in answer[key]["promoted"]]
        assert changes == pytest.approx([token.change for token in wanted.promoted], abs=1e-4)
    largest, random_largest = (answer[key]["promoted"][0]["change"] for key in ("writes", "random"))
    assert answer["exceeds_random"] == (largest >= 2 * random_largest)


def test_an_expert_is_measured_on_request_in_steps_that_equal_one(live_client: TestClient, fitted: World) -> None:
    expert = active_expert(live_client)
    url = f"{RUN}/experts/{expert}"
    assert live_client.get(url).json()["ablation"] is None
    try:
        *progress, last = events(live_client.post(f"{url}/ablation").text)
        assert last == {"event": "done"}
        counts = [event["done"] for event in progress]
        assert counts == sorted(set(counts))
        assert all(event["done"] < event["total"] for event in progress)
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


def test_found_experts_equal_the_trainers(live_client: TestClient, trainer: Trainer) -> None:
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
    edits = [(each.edit,) for each in expected.experts[:2]]
    for effect, other in zip(effects, measure(*trainer, config, edits), strict=True):
        assert (effect["change"], effect["price"], effect["random_price"]) == pytest.approx(
            (other.change, other.price, other.random_price), rel=1e-3, abs=1e-6
        )


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
