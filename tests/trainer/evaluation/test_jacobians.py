"""Jacobian agreement: forward derivatives against backward ones, a perfect layer, and its control."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from mxd.trainer.config import LayerConfig, Method
from mxd.trainer.config.layer import methods
from mxd.trainer.evaluation.jacobians import (
    DIRECTIONS,
    JacobianAgreement,
    load_forward_derivatives,
    measure_jacobians,
)
from mxd.trainer.evaluation.metrics import EvaluatedText
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.residuals import Residuals
from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.utils.bootstrap import Bootstrap
from mxd.trainer.utils.callbacks import NO_CALLBACKS
from tests.helpers.analysis.evaluation_setups import config_of, trap
from tests.helpers.language_models import tiny_language_model

SEQUENCES, LENGTH = 6, 20


def measure(language_model: LanguageModel, layer: SparseLayer, tokens: int = 30) -> JacobianAgreement | None:
    ids_SL = torch.randint(1, 50, (SEQUENCES, LENGTH), generator=torch.Generator().manual_seed(0))
    bootstrap = Bootstrap(SEQUENCES, 200, 0)
    text = EvaluatedText(language_model, ids_SL, NO_CALLBACKS, Residuals(language_model))
    return measure_jacobians(text, 1, layer, tokens, bootstrap, 0)


def random_layer(config: LayerConfig) -> SparseLayer:
    torch.manual_seed(0)
    layer = build_layer(config)
    for parameter in layer.parameters():
        parameter.data.normal_(0, 0.5)
    return layer.eval()


def forward_product(layer: SparseLayer, x_TI: Tensor, direction_TI: Tensor) -> Tensor:
    load_forward_derivatives()
    with torch.no_grad(), forward_ad.dual_level():
        dual_TO = layer(forward_ad.make_dual(x_TI, direction_TI)).output_TO
        tangent: Tensor | None = forward_ad.unpack_dual(dual_TO).tangent
    assert tangent is not None
    return tangent


CONFIG = LayerConfig(
    input_width=16, hidden_width=24, output_width=16, num_experts=31, k=4, rank=16, activation="silu", encoder="glu"
)


@pytest.mark.parametrize("method", methods("core", "imported"))
def test_forward_derivatives_equal_backward_ones(method: Method) -> None:
    layer = random_layer(CONFIG.model_copy(update={"method": method}))
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
    result = measure(language_model, random_layer(config_of(language_model.mlp_shape(1))))
    assert result is not None
    assert abs(result.random.value) < 0.3
    assert measure(language_model, random_layer(config_of(language_model.mlp_shape(1))), tokens=0) is None
