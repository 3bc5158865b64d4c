"""Strength sweeps: baselines, the norm of random directions, and missing ablation data."""

import pytest
import torch

from mxd.trainer.analysis.ablation import build_ablations
from mxd.trainer.config import AblationConfig, Sampling, SteeringEvaluationConfig
from mxd.trainer.errors import UserError
from mxd.trainer.evaluation.steering import (
    KINDS,
    SteeringVectors,
    evaluate_steering,
    generate_texts,
    median_results,
    score_texts,
    self_similarity,
)
from mxd.trainer.inference.generation import apply_repetition_penalty
from mxd.trainer.language_model.mlp_hooks import EditedMlp
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.storage.database.tables import SteeringStrengthRecord
from mxd.trainer.storage.run import Run
from tests.helpers.layers import random_layer
from tests.helpers.runs import World

CONFIG = SteeringEvaluationConfig(experts=3, strengths=(0.02, 0.5), prompts=("the old fox",), samples=2, max_tokens=6)


@pytest.fixture(name="run")
def indexed_run(world: World, run: Run) -> Run:
    """An indexed run whose layer is random, so that every expert matters."""
    run.__dict__["layer"] = random_layer(widths=(16, 24, 16), num_experts=40, k=4)
    world.index(run)
    return run


def steering_vectors(activation: float, length: float = 0.0) -> SteeringVectors:
    direction = torch.nn.functional.normalize(torch.ones(1, 16), dim=1) * length
    return SteeringVectors(torch.tensor([3]), torch.tensor([activation]), direction)


def test_effects_grow_with_strength(world: World, run: Run) -> None:
    build_ablations(run, AblationConfig(), world.language_model, world.database)
    results = evaluate_steering(run, CONFIG, world.language_model, world.database)
    assert len(world.rows(SteeringStrengthRecord)) == len(results) == 3 * (1 + 3 * 2)
    medians = median_results(results)
    assert medians["none"][0.0]["kl"] == pytest.approx(0, abs=1e-6)
    assert all(0 < medians[kind][0.02]["kl"] < medians[kind][0.5]["kl"] for kind in KINDS)
    assert results == evaluate_steering(run, CONFIG, world.language_model, world.database)


def test_a_direction_has_the_norm_of_the_contribution(world: World, run: Run) -> None:
    x_1TI = torch.randn(1, 5, 16, generator=torch.Generator().manual_seed(0))
    zero = torch.zeros(1, 5, 16)
    own, redirected = (
        EditedMlp(run.layer, steering_vectors(2.0, length).added)(x_1TI, lambda: zero) for length in (0.0, 1.0)
    )
    torch.testing.assert_close(own.norm(dim=2), redirected.norm(dim=2))
    matrix_HO = run.layer.expert_matrix(3)  # type: ignore[operator]
    torch.testing.assert_close(own[0], 2.0 * run.layer.encode(x_1TI[0]) @ matrix_HO)  # type: ignore[operator]


def test_without_steering_texts_and_losses_are_the_original_models(world: World, run: Run) -> None:
    prompt = prompt_ids(world.language_model, "the old fox")
    mlp = EditedMlp(run.layer, steering_vectors(0.0).added)
    ids_1T = generate_texts(world.language_model, 1, mlp, prompt, [0], Sampling(max_tokens=5, temperature=0))
    greedy = torch.tensor([prompt])
    for _ in range(5):
        logits_1V = world.language_model.logits(greedy)[:, -1].double()
        penalised_1V = apply_repetition_penalty(logits_1V, [set(greedy[0].tolist())], [Sampling()])
        greedy = torch.cat([greedy, penalised_1V.argmax(dim=1, keepdim=True)], dim=1)
    assert torch.equal(ids_1T, greedy)
    assert score_texts(world.language_model, 1, mlp, ids_1T, len(prompt))[0].item() == pytest.approx(0, abs=1e-6)


def test_self_similarity_is_one_for_the_same_words_and_zero_for_others() -> None:
    assert self_similarity(torch.tensor([[1, 2, 3], [3, 2, 1]])) == pytest.approx(1)
    assert self_similarity(torch.tensor([[1, 2, 3], [4, 5, 6]])) == pytest.approx(0)


def test_missing_ablation_data_is_an_error(world: World, run: Run) -> None:
    with pytest.raises(UserError, match="mxd ablate small"):
        evaluate_steering(run, CONFIG, world.language_model, world.database)
