"""Load-balancing loss and random K."""

from __future__ import annotations

import pytest
import torch

from mxd.trainer.config import RegularizationConfig
from mxd.trainer.layers.base import Routing
from mxd.trainer.training.regularization import auxiliary_loss, load_imbalance, sample_k
from tests.helpers.layers import random_layer
from tests.helpers.runs import World


def routing_of(indices: list[list[int]]) -> Routing:
    indices_TK = torch.tensor(indices)
    return Routing(torch.ones(indices_TK.shape), indices_TK)


def test_load_imbalance_is_1_if_balanced_and_n_for_a_single_expert() -> None:
    assert load_imbalance(routing_of([[0, 1], [2, 3]]), 4) == pytest.approx(1)
    assert load_imbalance(routing_of([[2], [2]]), 4) == pytest.approx(4)


def test_the_loss_reaches_the_gate_and_is_absent_by_default() -> None:
    layer = random_layer()
    routing = layer.route(torch.randn(64, 12, generator=torch.Generator().manual_seed(0)))
    assert auxiliary_loss(RegularizationConfig(), routing, layer) is None
    both = auxiliary_loss(RegularizationConfig(load_balance_weight=1.0), routing, layer)
    assert both is not None
    both.backward()
    gate_gradient = layer.get_parameter("gate.weight").grad
    assert gate_gradient is not None and gate_gradient.any()


def test_random_k_depends_only_on_seed_and_step(world: World) -> None:
    config = world.config(regularization=RegularizationConfig(k_spread=0.5))
    drawn = [sample_k(config, 4, step) for step in range(400)]
    assert set(drawn) == {2, 3, 4, 5, 6}
    assert drawn == [sample_k(config, 4, step) for step in range(400)]
    layer = random_layer(num_experts=40, k=4)
    x_TI = torch.randn(8, 12, generator=torch.Generator().manual_seed(0))
    assert layer(x_TI, drawn[0]).routing.indices_TK.shape == (8, drawn[0])
    assert {sample_k(world.config(), 4, step) for step in range(50)} == {4}
