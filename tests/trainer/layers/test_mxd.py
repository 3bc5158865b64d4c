"""MxD against the paper's own code, against explicit expert matrices, and against the paper's sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mxd.trainer.config import Activation, Encoder, LayerConfig
from mxd.trainer.layers.base import Routing, normalized_mse
from mxd.trainer.layers.mxd import MxD, spatial_median
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.utils.distributed import SINGLE_PROCESS
from tests.helpers.layers import random_layer

REFERENCE = Path(__file__).parents[2] / "reference"
CASES: list[tuple[str, Activation, Encoder]] = [
    ("mxd_mlp_gelu", "gelu", "mlp"),
    ("mxd_mlp_gelu_tanh", "gelu_tanh", "mlp"),
    ("mxd_mlp_relu", "relu", "mlp"),
    ("mxd_glu_sigmoid", "sigmoid", "glu"),
    ("mxd_glu_silu", "silu", "glu"),
]


def relative_error(actual: Tensor, expected: Tensor) -> float:
    return float((actual - expected).detach().norm() / expected.norm())


def parameters_of(golden: dict[str, Tensor], prefix: str, encoder: Encoder) -> dict[str, Tensor]:
    """Reference tensors under our parameter names. In a GLU, the paper's code applies the activation to W_enc."""
    activated, plain = {"mlp": ("encoder", ""), "glu": ("encoder_gate", "encoder")}[encoder]
    tensors = {
        "gate.weight": golden[f"{prefix}.gate"],
        "gate.bias": golden[f"{prefix}.gate_bias"],
        f"{activated}.weight": golden[f"{prefix}.W_enc"].T,
        f"{activated}.bias": golden[f"{prefix}.b_enc"],
        "decoder.weight": golden[f"{prefix}.W_dec"].T,
        "scaling_NO": golden[f"{prefix}.W_cond"].T,
        "output_bias": golden[f"{prefix}.b_dec_out"],
    }
    if plain:
        tensors |= {f"{plain}.{part}": golden[f"{prefix}.W_glu.{part}"] for part in ("weight", "bias")}
    return tensors


@pytest.mark.parametrize(("case", "activation", "encoder"), CASES)
def test_matches_the_papers_code(case: str, activation: Activation, encoder: Encoder) -> None:
    golden = load_file(REFERENCE / f"{case}.safetensors")
    layer = build_layer(
        LayerConfig(
            input_width=24,
            hidden_width=40,
            output_width=24,
            num_experts=64,
            k=6,
            activation=activation,
            encoder=encoder,
        )
    )
    layer.load_state_dict(parameters_of(golden, "param", encoder))
    output = layer(golden["in.x"])
    target = golden["in.target"]
    assert relative_error(output.output_TO, golden["out.y"]) < 1e-5
    activations_TN = torch.zeros(32, 64).scatter(1, output.routing.indices_TK, output.routing.activations_TK)
    assert relative_error(activations_TN, golden["out.acts"]) < 1e-5
    loss = ((output.output_TO - target).square() / target.norm(dim=1, keepdim=True)).mean()
    assert relative_error(loss, golden["out.ref_mse"]) < 1e-5
    assert relative_error(normalized_mse(output.output_TO, target), golden["out.nmse"]) < 1e-5
    loss.backward()
    for name, gradient in parameters_of(golden, "grad_ref_mse", encoder).items():
        actual = layer.get_parameter(name).grad
        assert actual is not None
        assert relative_error(actual, gradient) < 1e-5, name


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
def test_matches_the_sum_over_explicit_experts(encoder: Encoder) -> None:
    layer = random_layer(encoder=encoder).double()
    assert isinstance(layer, MxD)
    x_TI = torch.randn(17, layer.config.input_width, dtype=torch.float64)
    output = layer(x_TI)
    z_TH = layer.encode(x_TI)
    for token in range(17):
        experts = zip(*(values[token].tolist() for values in output.routing), strict=True)
        explicit = sum(a * (z_TH[token] @ layer.expert_matrix(int(n))) for a, n in experts) + layer.output_bias
        torch.testing.assert_close(output.output_TO[token], explicit)  # to 1e-7


def test_contribution_norms_match_explicit_experts() -> None:
    layer = random_layer()
    assert isinstance(layer, MxD)
    x_TI = torch.randn(5, layer.config.input_width)
    routing = layer.route(x_TI)
    norms_TK = layer.contribution_norms(layer.dense_output(x_TI), routing)
    z_TH = layer.encode(x_TI)
    for token in range(5):
        for column, (a, n) in enumerate(zip(*(values[token].tolist() for values in routing), strict=True)):
            expected = (a * (z_TH[token] @ layer.expert_matrix(int(n)))).norm()
            torch.testing.assert_close(norms_TK[token, column], expected, rtol=1e-4, atol=1e-6)


def test_an_expert_has_the_rank_of_the_decoder() -> None:
    layer = random_layer()
    assert isinstance(layer, MxD)
    rank = torch.linalg.matrix_rank(layer.decoder.weight)
    assert torch.linalg.matrix_rank(layer.expert_matrix(3)) == rank == layer.config.output_width


def test_initial_output_is_the_output_bias() -> None:
    layer = build_layer(random_layer().config)
    x_TI = torch.randn(4, layer.config.input_width)
    torch.testing.assert_close(layer(x_TI).output_TO, layer.get_parameter("output_bias").expand(4, -1))


def test_constant_routing_of_a_centred_layer_outputs_only_the_bias() -> None:
    layer = random_layer(mixing="centred")
    assert isinstance(layer, MxD)
    x_TI = torch.randn(50, layer.config.input_width)
    routing = layer.route(x_TI)
    constant = Routing(routing.activations_TK[:1].expand(50, -1), routing.indices_TK[:1].expand(50, -1))
    layer.mixing_centre_M.copy_(spatial_median(layer.mixing(constant), torch.zeros(layer.config.output_width)))
    torch.testing.assert_close(
        layer.decode(layer.dense_output(x_TI), constant), layer.output_bias.expand(50, -1), atol=1e-4, rtol=0
    )


def test_a_few_large_rows_do_not_decide_a_spatial_median() -> None:
    rows_TM = torch.randn(400, 8) + 5
    rows_TM[:4] = -1e4
    mean_M = rows_TM.mean(dim=0)
    centre_M = spatial_median(rows_TM, mean_M, steps=30)
    assert (mean_M < -90).all()
    torch.testing.assert_close(centre_M, torch.full((8,), 5.0), atol=0.3, rtol=0)


def test_a_training_step_of_a_centred_layer_uses_its_own_centre() -> None:
    layer = random_layer(mixing="centred")
    assert isinstance(layer, MxD)
    layer.mixing_centre_M.fill_(10.0)
    layer.average = SINGLE_PROCESS.average
    x_TI = torch.randn(50, layer.config.input_width)
    output = layer(x_TI)
    mixing_TM = layer.mixing(output.routing)
    expected_TO = (mixing_TM - spatial_median(mixing_TM, layer.mixing_centre_M)) * output.dense_TM
    torch.testing.assert_close(output.output_TO, expected_TO + layer.output_bias)


def test_a_constant_added_to_centred_mixing_has_no_gradient() -> None:
    layer = random_layer(mixing="centred")
    assert isinstance(layer, MxD)
    output = layer(torch.randn(50, layer.config.input_width))
    dense_TM, mixing_TM = output.dense_TM.detach(), layer.mixing(output.routing).detach()
    gradients = []
    for own_centre in (SINGLE_PROCESS.average, None):
        layer.average = own_centre
        shift_M = torch.zeros(layer.config.output_width, requires_grad=True)
        layer.decode_mixed(dense_TM, mixing_TM + shift_M).square().sum().backward()
        assert shift_M.grad is not None
        gradients.append(shift_M.grad.abs().max().item())
    assert gradients[0] < 1e-5 * gradients[1]
