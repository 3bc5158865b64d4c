"""Jacobian agreement: forward derivatives against backward ones, a perfect layer, and its control."""

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from mxd.trainer.config import Method
from mxd.trainer.config.layer import method_traits, methods
from mxd.trainer.evaluation import metrics
from mxd.trainer.evaluation.jacobians import DIRECTIONS, JacobianAgreement, load_forward_derivatives, measure_jacobians
from mxd.trainer.evaluation.metrics import ConstantMixing, EvaluatedText, constant_mixing_fit
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.residuals import Residuals
from mxd.trainer.layers.base import SparseLayer, normalized_mse
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.utils.bootstrap import Bootstrap
from mxd.trainer.utils.callbacks import NO_CALLBACKS
from tests.helpers.language_models import tiny_language_model
from tests.helpers.layers import layer_config, random_layer, trap

SEQUENCES, LENGTH = 6, 20


def measure(language_model: LanguageModel, layer: SparseLayer, tokens: int = 30) -> JacobianAgreement | None:
    ids_SL = torch.randint(1, 50, (SEQUENCES, LENGTH), generator=torch.Generator().manual_seed(0))
    bootstrap = Bootstrap(SEQUENCES, 200, 0)
    text = EvaluatedText(language_model, ids_SL, NO_CALLBACKS, Residuals(language_model))
    return measure_jacobians(text, 1, layer, tokens, bootstrap, 0)


def forward_product(layer: SparseLayer, x_TI: Tensor, direction_TI: Tensor) -> Tensor:
    load_forward_derivatives()
    with torch.no_grad(), forward_ad.dual_level():
        dual_TO = layer(forward_ad.make_dual(x_TI, direction_TI)).output_TO
        tangent: Tensor | None = forward_ad.unpack_dual(dual_TO).tangent
    assert tangent is not None
    return tangent


@pytest.mark.parametrize("method", methods("core", "imported"))
def test_forward_derivatives_equal_backward_ones(method: Method) -> None:
    layer = random_layer(method, widths=(16, 24, 16)).eval()
    x_TI, direction_TI, back_TO = (torch.randn(12, 16, generator=torch.Generator().manual_seed(n)) for n in range(3))
    x_TI.requires_grad_()
    (gradient_TI,) = torch.autograd.grad(layer(x_TI).output_TO, x_TI, back_TO)
    product_TO = forward_product(layer, x_TI.detach(), direction_TI)
    assert product_TO.abs().max() > 0.1
    torch.testing.assert_close((back_TO * product_TO).sum(1), (gradient_TI * direction_TI).sum(1), rtol=1e-3, atol=1e-3)


def test_a_perfect_layer_agrees_and_its_control_does_not() -> None:
    language_model = tiny_language_model("llama")
    result = measure(language_model, trap(language_model, 1))
    assert result is not None
    assert (result.tokens, result.directions) == (30, DIRECTIONS)
    for kind in ("random", "data"):
        agreement, control = getattr(result, kind), getattr(result, f"{kind}_control")
        assert agreement.low == pytest.approx(1, abs=1e-5)
        assert control.low < control.value < control.high < 0.7


@pytest.mark.parametrize("family", ["gpt2", "opt"])
def test_a_random_layer_does_not_agree_in_any_architecture(family: str) -> None:
    language_model = tiny_language_model(family)
    layer = random_layer(num_experts=12, k=1, **vars(language_model.architecture.mlp_shape(1))).eval()
    result = measure(language_model, layer)
    assert result is not None
    assert abs(result.random.value) < 0.3
    assert measure(language_model, layer, tokens=0) is None


OF_OUTPUTS: tuple[Method, ...] = ("mxd", "transcoder", "skip-transcoder")
OF_A_HIDDEN_VECTOR: tuple[Method, ...] = ("hidden-mxd", "low-rank-mxd", "molt")


def layer_of(method: Method, seed: int = 0) -> SparseLayer:
    torch.manual_seed(seed)
    layer = build_layer(layer_config(method, (6, 9, 6), num_experts=20, k=3, mixing=method_traits(method).mixing))
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
    monkeypatch.setattr(metrics, "MAX_JOINT_WIDTH", 8)
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
