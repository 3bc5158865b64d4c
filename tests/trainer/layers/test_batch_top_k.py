"""BatchTopK: K on average over the batch that is fitted on, and a threshold that needs no batch afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.layers import random_layer_of
from tests.runs import small_world
from trainer.config import CollapseConfig, Encoder
from trainer.errors import UserError
from trainer.layers.batch_top_k import RATE, UNKNOWN, BatchTopK
from trainer.layers.registry import load_layer
from trainer.run import Run
from trainer.train import train

K = 5


def layer_of(encoder: Encoder = "glu") -> BatchTopK:
    layer = random_layer_of("batch-topk-mxd", encoder=encoder)
    assert isinstance(layer, BatchTopK)
    return layer


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
def test_fitting_chooses_the_largest_of_all_scores(encoder: Encoder) -> None:
    layer, x_TI = layer_of(encoder), torch.randn(40, 12)
    routing = layer.route(x_TI)
    scores_TN = layer.gate(x_TI).relu()
    least = scores_TN.flatten().topk(40 * K).values[-1]
    chosen_TN = torch.zeros_like(scores_TN).scatter_add(1, routing.indices_TK, routing.coefficients_TK)
    torch.testing.assert_close(chosen_TN, torch.where(scores_TN >= least, scores_TN, 0.0))
    counts_T = (routing.coefficients_TK > 0).sum(1)
    assert counts_T.sum() == 40 * K
    assert counts_T.min() < K < counts_T.max() <= 4 * K


def test_the_threshold_is_a_running_mean_of_the_smallest_chosen_score() -> None:
    layer = layer_of()
    assert layer.threshold.item() == UNKNOWN
    with torch.no_grad():
        layer.route(torch.randn(40, 12))  # as starting values do: nothing is learnt
    assert layer.threshold.item() == UNKNOWN
    smallest = []
    for _ in range(3):
        coefficients_TK = layer.route(torch.randn(40, 12)).coefficients_TK
        smallest.append(coefficients_TK[coefficients_TK > 0].min().item())
    wanted = smallest[0]
    for value in smallest[1:]:
        wanted += RATE * (value - wanted)
    assert layer.threshold.item() == pytest.approx(wanted, rel=1e-5)


def test_afterwards_a_token_needs_no_others() -> None:
    layer, x_TI = layer_of(), torch.randn(40, 12)
    for _ in range(4):
        layer.route(torch.randn(200, 12))
    layer.eval()
    together = layer.route(x_TI).coefficients_TK
    alone = torch.cat([layer.route(row_1I).coefficients_TK for row_1I in x_TI.split(1)])
    torch.testing.assert_close(together, alone)
    assert K * 0.7 < (together > 0).sum(1).float().mean() < K * 1.3
    assert together[together > 0].min() >= layer.threshold


def test_fitted_saved_and_taken_up_with_its_threshold(tmp_path: Path) -> None:
    world = small_world(tmp_path)
    train(world.config(method="batch-topk-mxd"), world.data, world.store, world.language_model)
    steps = iter(range(100))
    cut = world.config("cut", method="batch-topk-mxd")
    train(cut, world.data, world.store, world.language_model, should_stop=lambda: next(steps) == 10)
    train(cut, world.data, world.store, world.language_model, resume="if-any")
    whole, resumed = (load_layer(Run.load(name, world.data).folder) for name in ("small", "cut"))
    assert isinstance(whole, BatchTopK)
    assert whole.threshold.item() > 0
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name])
    with pytest.raises(UserError, match="leave --revive-after out"):
        config = world.config("no", method="batch-topk-mxd", collapse=CollapseConfig(revive_after=100))
        train(config, world.data, world.store, world.language_model)
    world.store.dispose()
