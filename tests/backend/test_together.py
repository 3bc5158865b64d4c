"""Several layers of one language model over HTTP, chat prompts, and dose curves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from backend.app import create_app
from backend.settings import Settings
from tests.language_models import saved_language_model
from tests.runs import World, small_world
from trainer.config import DoseConfig, Edit, Sampling
from trainer.dose import DoseCurve, dose
from trainer.joint_routing import route_together
from trainer.language_model import LanguageModel
from trainer.run import Run
from trainer.train import train

PROMPT = "the old fox"
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
TURNS = [{"role": "user", "text": "the old"}, {"role": "assistant", "text": "fox"}]
CHAT = "<user>the old<assistant>fox"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world with two runs of two layers, named by folder in two ways, of a language model that chats."""
    folder = tmp_path_factory.mktemp("pair")
    world = small_world(folder)
    source = saved_language_model(world.data / "language-model")
    (source / "chat_template.jinja").write_text(TEMPLATE)
    language_model = LanguageModel.load(str(source), "cpu")
    for name, layer, named in (("late", 1, str(source)), ("early", 0, "language-model")):
        train(world.config(name, layer=layer, language_model=named), world.data, world.store, language_model)
    other = saved_language_model(folder / "other", seed=1)
    train(
        world.config("other", layer=0, language_model=str(other)),
        world.data,
        world.store,
        LanguageModel.load(str(other), "cpu"),
    )
    yield world
    world.store.dispose()


@pytest.fixture(scope="module")
def pair_client(pair: World) -> Iterator[TestClient]:
    with TestClient(create_app(Settings(data=pair.data, frontend=pair.data / "dist", device="cpu"))) as it:
        yield it


def runs_of(world: World) -> tuple[LanguageModel, list[Run]]:
    runs = [Run.load(name, world.data) for name in ("late", "early")]
    return LanguageModel.load(runs[0].language_model_source, "cpu"), runs


def streamed(client: TestClient, path: str, body: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    with client.stream("POST", path, json=body) as answer:
        assert answer.status_code == 200, answer.read()
        blocks = "".join(answer.iter_text()).removesuffix("\n\n").split("\n\n")
    parts = [block.split("\n") for block in blocks]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in parts]


def test_runs_of_one_language_model_find_each_other(pair_client: TestClient) -> None:
    found = pair_client.get("/api/runs/late/live").json()
    assert [(it["name"], it["layer"], it["indexed"]) for it in found["layers"]] == [("early", 0, False)]
    assert (found["chat"], found["no_chat"]) == (True, None)


def test_layers_together_are_the_trainers(pair_client: TestClient, pair: World) -> None:
    body = {"runs": ["late", "early"], "text": PROMPT}
    routings = pair_client.post("/api/routing", json=body).json()["routings"]
    assert [routing["run"] for routing in routings] == ["late", "early"]
    for routing, wanted in zip(routings, route_together(*runs_of(pair), PROMPT), strict=True):
        for token, expected in zip(routing["tokens"], wanted.tokens, strict=True):
            assert token["kl"] == pytest.approx(expected.kl, abs=1e-4)
            assert [it["expert"] for it in token["experts"]] == [it.expert for it in expected.experts]


@pytest.mark.parametrize(
    ("runs", "words", "status"),
    [
        (["late", "other"], "another language model", 400),
        (["late", "late"], "named twice", 400),
        (["late", "none"], "no run none", 404),
        ([], "runs", 422),
    ],
)
def test_runs_that_do_not_go_together(pair_client: TestClient, runs: list[str], words: str, status: int) -> None:
    answer = pair_client.post("/api/routing", json={"runs": runs, "text": PROMPT})
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]


def test_a_chat_is_routed_and_steered_as_its_text(pair_client: TestClient) -> None:
    plain = pair_client.post("/api/runs/late/routing", json={"text": CHAT}).json()
    chat = pair_client.post("/api/runs/late/routing", json={"turns": TURNS}).json()
    assert chat["tokens"] == plain["tokens"]
    sampling = {"max_tokens": 4, "seed": 3}
    texts = [
        [
            data["id"]
            for name, data in streamed(pair_client, "/api/runs/late/steering", {**prompt, "sampling": sampling})
            if name == "token"
        ]
        for prompt in ({"prompt": CHAT}, {"turns": TURNS})
    ]
    assert texts[0] == texts[1]


def test_without_a_template_the_sentence_is_the_same_everywhere(pair_client: TestClient) -> None:
    assert "no chat template" in pair_client.get("/api/runs/other/live").json()["no_chat"]
    answer = pair_client.post("/api/runs/other/routing", json={"turns": TURNS})
    assert answer.status_code == 400
    assert "no chat template" in answer.json()["error"]["message"]


def test_steering_takes_edits_of_another_layer(pair_client: TestClient) -> None:
    edits = [{"expert": 3, "mode": "add", "strength": 40, "run": "early"}]
    body = {"prompt": PROMPT, "edits": edits, "sampling": {"max_tokens": 4, "temperature": 0}}
    tokens = [data for name, data in streamed(pair_client, "/api/runs/late/steering", body) if name == "token"]
    assert max(abs(token["delta_log_probability"]) for token in tokens) > 0


def test_a_dose_curve_is_the_trainers(pair_client: TestClient, pair: World) -> None:
    sampling = Sampling(max_tokens=5, samples=2)
    config = DoseConfig(
        prompt=PROMPT, edits=(Edit(expert=3, mode="add"),), strengths=(0.0, 20.0, 40.0), sampling=sampling
    )
    events = streamed(pair_client, "/api/runs/late/steering/dose", config.model_dump(mode="json"))
    assert [name for name, _ in events[:-1]] == ["progress"] * (len(events) - 1)
    name, curve = events[-1]
    assert name == "done"
    language_model, runs = runs_of(pair)
    *_, wanted = dose(language_model, runs[0], config)
    assert isinstance(wanted, DoseCurve)
    assert [point["text"] for point in curve["points"]] == [point.text for point in wanted.points]
    assert [point["kl"] for point in curve["points"]] == pytest.approx([it.kl for it in wanted.points], abs=1e-4)
    assert curve["suggested"] == wanted.suggested
    assert tuple(curve["promoted"]) == wanted.promoted


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"edit": 4}, "no edit 4"),
        ({"edits": [{"expert": 1, "mode": "off"}]}, "no strength to vary"),
        ({"edits": [{"expert": 1_000_000, "mode": "add"}]}, "no expert 1000000"),
    ],
)
def test_a_dose_that_cannot_be_measured(pair_client: TestClient, change: dict[str, Any], words: str) -> None:
    body = {"prompt": PROMPT, "edits": [{"expert": 1, "mode": "add"}], **change}
    answer = pair_client.post("/api/runs/late/steering/dose", json=body)
    assert answer.status_code in (400, 404)
    assert words in answer.json()["error"]["message"]


def test_sources_named_in_two_ways_are_one(pair: World, tmp_path: Path) -> None:
    late, early = (Run.load(name, pair.data) for name in ("late", "early"))
    assert late.config.language_model != early.config.language_model
    assert late.language_model_source == early.language_model_source
