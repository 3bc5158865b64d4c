"""Dose curves: nothing where nothing is added, controls of the right length, and what is missing is said."""

from __future__ import annotations

import pytest
import torch
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from tests.layers import random_layer
from tests.runs import World
from trainer.config import IndexConfig, InfluenceConfig, Sampling, SteeringEvaluationConfig
from trainer.errors import UserError
from trainer.indexing import build_index
from trainer.influence import build_influence
from trainer.routing import prompt_ids
from trainer.run import Run
from trainer.sampling import penalised
from trainer.steering_evaluation.build import evaluate_steering
from trainer.steering_evaluation.doses import medians
from trainer.steering_evaluation.texts import Pushed, Pushes, score, self_similarity, write
from trainer.store import SteeringDoseRecord
from trainer.train import train

CONFIG = SteeringEvaluationConfig(experts=3, strengths=(0.02, 0.5), prompts=("the old fox",), samples=2, max_tokens=6)


@pytest.fixture
def run(world: World) -> Run:
    train(world.config(), world.data, world.store, world.language_model)
    run = Run.load("small", world.data)
    run.__dict__["layer"] = random_layer(widths=(16, 24, 16), num_experts=40, k=4)
    index = IndexConfig.model_validate({"text": world.text, "tokens": 640, "per_interval": 1})
    build_index(run, index, world.language_model, world.store)
    return run


def pushes(coefficient: float, turned: float = 0.0) -> Pushes:
    direction = torch.nn.functional.normalize(torch.ones(1, 16), dim=1) * turned
    return Pushes(torch.tensor([3]), torch.tensor([coefficient]), direction)


def test_doses_grow_with_strength_and_the_untouched_text_has_none(world: World, run: Run) -> None:
    build_influence(run, InfluenceConfig(), world.language_model, world.store)
    doses = evaluate_steering(run, CONFIG, world.language_model, world.store)
    with Session(world.store) as session:
        stored = session.scalar(select(func.count()).select_from(SteeringDoseRecord))
    assert stored == len(doses) == 3 * (1 + 3 * 2)
    found = medians(doses)
    assert found["none"][0.0]["kl"] == pytest.approx(0, abs=1e-6)
    assert all(0 < found[kind][0.02]["kl"] < found[kind][0.5]["kl"] for kind in ("expert", "other", "direction"))
    assert doses == evaluate_steering(run, CONFIG, world.language_model, world.store)


def test_a_direction_is_as_long_as_the_contribution_that_it_stands_for(world: World, run: Run) -> None:
    x_1TI = torch.randn(1, 5, 16, generator=torch.Generator().manual_seed(0))
    zero = torch.zeros(1, 5, 16)
    own, turned = (Pushed(run.layer, pushes(2.0, to))(x_1TI, lambda: zero) for to in (0.0, 1.0))
    torch.testing.assert_close(own.norm(dim=2), turned.norm(dim=2))
    matrix_HO = run.layer.expert_matrix(3)  # type: ignore[operator]
    torch.testing.assert_close(own[0], 2.0 * run.layer.encode(x_1TI[0]) @ matrix_HO)  # type: ignore[operator]


def test_without_a_push_texts_and_losses_are_the_language_models(world: World, run: Run) -> None:
    prompt = prompt_ids(world.language_model, "the old fox")
    pushed = Pushed(run.layer, pushes(0.0))
    ids_1T = write(world.language_model, 1, pushed, prompt, [0], Sampling(max_tokens=5, temperature=0))
    greedy = torch.tensor([prompt])
    for _ in range(5):
        logits_1V = world.language_model.logits(greedy)[:, -1].double()
        penalised_1V = penalised(logits_1V, [set(greedy[0].tolist())], [Sampling()])
        greedy = torch.cat([greedy, penalised_1V.argmax(dim=1, keepdim=True)], dim=1)
    assert torch.equal(ids_1T, greedy)
    assert score(world.language_model, 1, pushed, ids_1T, len(prompt)).kl.item() == pytest.approx(0, abs=1e-6)


def test_self_similarity_is_one_for_the_same_words_and_zero_for_others() -> None:
    assert self_similarity(torch.tensor([[1, 2, 3], [3, 2, 1]])) == pytest.approx(1)
    assert self_similarity(torch.tensor([[1, 2, 3], [4, 5, 6]])) == pytest.approx(0)


def test_what_the_experts_write_must_be_known(world: World, run: Run) -> None:
    with pytest.raises(UserError, match="mxd influence small"):
        evaluate_steering(run, CONFIG, world.language_model, world.store)
