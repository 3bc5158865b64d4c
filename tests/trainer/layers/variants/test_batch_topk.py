"""BatchTopK: K active experts on average in a training batch, and a threshold at inference."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mxd.trainer.config import Encoder
from mxd.trainer.layers.registry import load_layer
from mxd.trainer.layers.variants.batch_topk import THRESHOLD_UPDATE, UNSET, BatchTopK
from mxd.trainer.storage.run import Run
from mxd.trainer.training.train import train_layer
from mxd.trainer.utils.callbacks import Callbacks
from tests.helpers.layers import random_layer_of
from tests.helpers.runs import small_world

K = 5


def layer_of(encoder: Encoder = "glu") -> BatchTopK:
    layer = random_layer_of("batch-topk-mxd", encoder=encoder)
    assert isinstance(layer, BatchTopK)
    return layer


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
def test_training_keeps_the_largest_scores_of_the_batch(encoder: Encoder) -> None:
    layer, x_TI = layer_of(encoder), torch.randn(40, 12)
    routing = layer.route(x_TI)
    scores_TN = layer.gate(x_TI).relu()
    least = scores_TN.flatten().topk(40 * K).values[-1]
    chosen_TN = torch.zeros_like(scores_TN).scatter_add(1, routing.indices_TK, routing.coefficients_TK)
    torch.testing.assert_close(chosen_TN, torch.where(scores_TN >= least, scores_TN, 0.0))
    counts_T = (routing.coefficients_TK > 0).sum(1)
    assert counts_T.sum() == 40 * K
    assert counts_T.min() < K < counts_T.max() <= 4 * K


def test_the_threshold_is_a_running_mean_of_the_smallest_kept_score() -> None:
    layer = layer_of()
    assert layer.threshold.item() == UNSET
    with torch.no_grad():
        layer.route(torch.randn(40, 12))  # as starting values do: nothing is learnt
    assert layer.threshold.item() == UNSET
    smallest = []
    for _ in range(3):
        coefficients_TK = layer.route(torch.randn(40, 12)).coefficients_TK
        smallest.append(coefficients_TK[coefficients_TK > 0].min().item())
    expected = smallest[0]
    for value in smallest[1:]:
        expected += THRESHOLD_UPDATE * (value - expected)
    assert layer.threshold.item() == pytest.approx(expected, rel=1e-5)


def test_at_inference_tokens_are_independent() -> None:
    layer, x_TI = layer_of(), torch.randn(40, 12)
    for _ in range(4):
        layer.route(torch.randn(200, 12))
    layer.eval()
    together = layer.route(x_TI).coefficients_TK
    alone = torch.cat([layer.route(row_1I).coefficients_TK for row_1I in x_TI.split(1)])
    torch.testing.assert_close(together, alone)
    assert K * 0.7 < (together > 0).sum(1).float().mean() < K * 1.3
    assert together[together > 0].min() >= layer.threshold


def test_a_resumed_run_keeps_its_threshold(tmp_path: Path) -> None:
    world = small_world(tmp_path)
    train_layer(world.config(method="batch-topk-mxd"), world.data, world.database, world.language_model)
    steps = iter(range(100))
    cut = world.config("cut", method="batch-topk-mxd")
    train_layer(
        cut,
        world.data,
        world.database,
        world.language_model,
        callbacks=Callbacks(is_cancelled=lambda: next(steps) == 10),
    )
    train_layer(cut, world.data, world.database, world.language_model, resume="if-any")
    whole, resumed = (load_layer(Run.load(name, world.data).folder) for name in ("small", "cut"))
    assert isinstance(whole, BatchTopK)
    assert whole.threshold.item() > 0
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name])
    world.database.dispose()
