"""Training of a JumpReLU-MxD: active experts, gradients of the thresholds and the target number of experts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from mxd.trainer.config import Encoder, OptimizerConfig
from mxd.trainer.layers.registry import load_layer
from mxd.trainer.layers.variants.jumprelu import SPARSITY_WEIGHT, WINDOW, JumpReluMxD
from mxd.trainer.storage.run import METRICS_FILE, Run
from mxd.trainer.training.train import train_layer
from mxd.trainer.utils.callbacks import Callbacks
from mxd.trainer.utils.files import read_json
from tests.helpers.layers import flat_gate, random_layer_of
from tests.helpers.runs import small_world

K = 5


def layer_of(encoder: Encoder = "glu") -> JumpReluMxD:
    layer = random_layer_of("jumprelu-mxd", encoder=encoder)
    assert isinstance(layer, JumpReluMxD)
    layer.log_factor_N.data.zero_()
    return layer


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
def test_initially_k_experts_are_active_on_average(encoder: Encoder) -> None:
    layer, x_TI = layer_of(encoder), torch.randn(40, 12)
    coefficients_TN = layer.route(x_TI).coefficients_TK
    assert (coefficients_TN > 0).sum() == 40 * K - 1  # the last of them is the threshold itself
    least = layer.gate(x_TI).flatten().topk(40 * K).values[-1]
    torch.testing.assert_close(layer.threshold_N, least.expand(33))
    layer.route(torch.randn(40, 12))
    torch.testing.assert_close(layer.threshold_N, least.expand(33))


def test_experts_above_their_threshold_are_active() -> None:
    layer, x_TI = layer_of().eval(), torch.randn(40, 12)
    layer.level.fill_(0.8)
    layer.log_factor_N.data.uniform_(-1, 1)
    assert layer.threshold_N.std() > 0.1
    scores_TN = layer.gate(x_TI)
    expected_TN = torch.where(scores_TN > layer.threshold_N, scores_TN, 0.0)
    torch.testing.assert_close(layer.route(x_TI).coefficients_TK, expected_TN)


def test_too_many_experts_raise_the_thresholds_and_too_few_lower_them() -> None:
    layer, x_TI = layer_of(), torch.randn(200, 12)
    layer.route(x_TI)
    for change, sign in ((-0.5, 1), (0.5, -1)):
        layer.log_factor_N.data.fill_(change)
        layer.zero_grad()
        routing = layer.route(x_TI)
        penalty = layer.auxiliary_loss(routing)
        actual = (routing.coefficients_TK > 0).sum(1).float().mean().item()
        assert penalty.item() == pytest.approx(SPARSITY_WEIGHT * (actual / K - 1) ** 2, rel=1e-4)
        penalty.backward()
        assert layer.log_factor_N.grad is not None
        # Going down the gradient: up where there are too many.
        assert (layer.log_factor_N.grad * sign <= 0).all()
        assert (layer.log_factor_N.grad != 0).any()


def test_the_error_changes_thresholds_with_scores_just_above() -> None:
    layer = layer_of()
    layer.level.fill_(1.0)
    layer.log_factor_N.data.zero_()
    flat_gate(layer).weight.data.zero_()
    flat_gate(layer).bias.data.copy_(torch.linspace(0, 3.2, 33))  # scores of experts 0 to 32, the same on every token
    layer.route(torch.randn(4, 12)).coefficients_TK.sum().backward()
    assert layer.log_factor_N.grad is not None
    near = (flat_gate(layer).bias > 1.0) & (flat_gate(layer).bias < 1.0 + WINDOW)
    assert near.sum() == 2
    assert torch.equal(layer.log_factor_N.grad != 0, near)
    assert layer.log_factor_N.grad[near].tolist() == pytest.approx([-4 / WINDOW] * 2)


def test_a_resumed_run_keeps_its_thresholds(tmp_path: Path) -> None:
    world = small_world(tmp_path)
    slow = OptimizerConfig(learning_rate=1e-3, batch_tokens=64, buffer_tokens=512)
    settings: dict[str, Any] = {"method": "jumprelu-mxd", "tokens": 48 * 64, "init": "random", "optimizer": slow}
    train_layer(world.config(**settings), world.data, world.database, world.language_model)
    steps = iter(range(100))
    cut = world.config("cut", **settings)
    train_layer(
        cut,
        world.data,
        world.database,
        world.language_model,
        callbacks=Callbacks(is_cancelled=lambda: next(steps) == 10),
    )
    train_layer(cut, world.data, world.database, world.language_model, resume="if-any")
    whole, resumed = (load_layer(Run.load(name, world.data).folder) for name in ("small", "cut"))
    assert isinstance(whole, JumpReluMxD)
    assert whole.threshold_N.std() > 0
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name])
    assert 2 < read_json(Run.load("small", world.data).folder / METRICS_FILE)[-1]["l0"] < 8  # K is 4
    world.database.dispose()
