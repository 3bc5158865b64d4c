"""Expert ranks against numpy on explicit matrices, and the routing share of layers whose share is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mxd.trainer.layers.base import normalized_mse
from mxd.trainer.layers.metrics import measure_ranks, output_routing_share
from mxd.trainer.layers.mxd import MxD
from tests.helpers.layers import random_layer


def mxd(hidden: int, output: int) -> MxD:
    """A layer with random weights."""
    layer = random_layer(widths=(12, hidden, output))
    assert isinstance(layer, MxD)
    return layer


@pytest.mark.parametrize(("hidden", "output"), [(20, 16), (16, 16), (10, 16)])
def test_ranks_match_numpy(hidden: int, output: int) -> None:
    layer, experts = mxd(hidden, output), [0, 3, 7]
    actual = measure_ranks(layer, experts)
    matrices = [layer.expert_matrix(expert).detach().double().numpy() for expert in experts]
    singular = [np.linalg.svd(matrix, compute_uv=False) for matrix in matrices]
    assert actual.normalized_rank == 1.0
    assert actual.stable_rank == pytest.approx(np.mean([(it**2).sum() / it[0] ** 2 for it in singular]), rel=1e-6)
    assert actual.min_singular_value == pytest.approx(min(it[-1] / it[0] for it in singular), rel=1e-5)
    assert actual.min_scaling == layer.scaling_NO.abs().min().item()


def test_zero_scalings_lower_the_rank() -> None:
    layer = mxd(20, 16)
    with torch.no_grad():
        layer.scaling_NO[3, :4] = 0.0
    actual = measure_ranks(layer, [3])
    assert actual.normalized_rank == 12 / 16
    assert actual.min_singular_value == pytest.approx(0.0, abs=1e-9)
    assert actual.min_scaling == 0.0


def test_the_routing_share_of_the_output_is_0_without_routing_and_1_with_routing_alone() -> None:
    layer, x_TI = mxd(20, 16), torch.randn(64, 12, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        layer.gate.get_parameter("weight").zero_()
        layer.gate.get_parameter("bias").fill_(1.0)  # the same experts with the same activation on every token
        same_TO = layer(x_TI).output_TO
        assert output_routing_share(layer, x_TI, same_TO) == pytest.approx(0, abs=1e-6)
        layer.output_bias.zero_()
        layer.scaling_NO.zero_()  # the output is zero, whose normalised MSE is 1
        mean_TO = same_TO.mean(0).expand_as(same_TO)
        expected = 1 / float(normalized_mse(mean_TO, same_TO))
        assert output_routing_share(layer, x_TI, same_TO) == pytest.approx(expected)
