"""The best constant mixing: a least-squares fit that finds what a layer does without routing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mxd.trainer.config import LayerConfig, Method
from mxd.trainer.config.layer import method_traits
from mxd.trainer.evaluation import metrics as module
from mxd.trainer.evaluation.metrics import ConstantMixing, constant_mixing_fit
from mxd.trainer.layers.base import SparseLayer, normalized_mse
from mxd.trainer.layers.registry import build_layer

OF_OUTPUTS: tuple[Method, ...] = ("mxd", "transcoder", "skip-transcoder")
OF_A_HIDDEN_VECTOR: tuple[Method, ...] = ("hidden-mxd", "low-rank-mxd", "molt")


def layer_of(method: Method, seed: int = 0) -> SparseLayer:
    torch.manual_seed(seed)
    layer = build_layer(
        LayerConfig(
            method=method,
            input_width=6,
            hidden_width=9,
            output_width=6,
            num_experts=20,
            k=3,
            activation="silu",
            encoder="glu",
            mixing=method_traits(method).mixing,
            rank=3 if method_traits(method).rank else None,
        )
    )
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape))
    return layer


def fitted(layer: SparseLayer, dense_TM: Tensor, target_TO: Tensor) -> ConstantMixing:
    fit = constant_mixing_fit(layer)
    assert fit is not None
    for dense, target in zip(dense_TM.split(50), target_TO.split(50), strict=True):
        fit.add(dense, target)
    return fit.best()


@pytest.mark.parametrize("method", OF_OUTPUTS + OF_A_HIDDEN_VECTOR)
@pytest.mark.parametrize("seed", range(3))
@torch.no_grad()
def test_no_other_constant_has_a_lower_error(method: Method, seed: int) -> None:
    layer, x_TI, target_TO = layer_of(method, seed), torch.randn(200, 6), torch.randn(200, 6)
    dense_TM = layer.dense_output(x_TI)
    best = fitted(layer, dense_TM, target_TO)
    error = normalized_mse(best.output(layer, dense_TM), target_TO)
    for _ in range(20):
        change_M, change_O = 0.1 * torch.randn_like(best.mixing_M), 0.1 * torch.randn(6)
        other = ConstantMixing(best.mixing_M + change_M, best.bias_O + change_O)
        assert error <= normalized_mse(other.output(layer, dense_TM), target_TO)


@torch.no_grad()
def test_it_finds_a_dense_path_that_the_median_mixing_hides() -> None:
    """The target is a scaled dense path and a constant. A mixing of 0, such as the median of +m and -m, misses it."""
    layer = layer_of("mxd")
    dense_TM = layer.dense_output(torch.randn(400, 6))
    scale_O = torch.rand(6) + 0.5
    target_TO = scale_O * dense_TM + 2.0
    best = fitted(layer, dense_TM, target_TO)
    assert normalized_mse(best.output(layer, dense_TM), target_TO) < 1e-8
    hidden_TO = layer.decode_mixed(dense_TM, torch.zeros(400, 6))
    assert normalized_mse(hidden_TO, target_TO) > 0.1


@pytest.mark.parametrize("method", OF_A_HIDDEN_VECTOR)
@torch.no_grad()
def test_it_finds_the_constant_mixing_of_a_hidden_vector(method: Method) -> None:
    layer = layer_of(method)
    dense_TM = layer.dense_output(torch.randn(400, 6))
    target_TO = layer.decode_mixed(dense_TM, torch.randn(dense_TM.shape[1]).expand_as(dense_TM)) + 2.0
    output_TO = fitted(layer, dense_TM, target_TO).output(layer, dense_TM)
    assert normalized_mse(output_TO, target_TO) < 1e-6
    assert normalized_mse(layer.decode_mixed(dense_TM, torch.zeros_like(dense_TM)), target_TO) > 0.1


def test_a_mixing_that_is_not_element_wise_or_too_wide_is_not_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert constant_mixing_fit(layer_of("tensor-ring-mxd")) is None
    monkeypatch.setattr(module, "MAX_JOINT_WIDTH", 8)
    assert constant_mixing_fit(layer_of("hidden-mxd")) is None
    assert constant_mixing_fit(layer_of("mxd")) is not None


@torch.no_grad()
def test_a_transcoder_has_no_dense_path() -> None:
    """Its best constant output is the mean target, weighted as in the normalised MSE."""
    layer, target_TO = layer_of("transcoder"), torch.randn(300, 6)
    dense_TM = layer.dense_output(torch.randn(300, 6))
    output_TO = fitted(layer, dense_TM, target_TO).output(layer, dense_TM)
    weights_T1 = 1 / target_TO.square().sum(1, keepdim=True)
    mean_O = (weights_T1 * target_TO).sum(0) / weights_T1.sum()
    torch.testing.assert_close(output_TO, mean_O.expand_as(target_TO), atol=1e-5, rtol=1e-5)
