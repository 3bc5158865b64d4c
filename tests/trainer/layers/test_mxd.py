"""MxDs and transcoders against the paper's own code, and the centre of the mixing."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mxd.trainer.config.layer import Encoder, Method, transform_ranks
from mxd.trainer.layers.mxd import MxD, Routing, normalized_mse, spatial_median
from mxd.trainer.layers.variants import THRESHOLD_UPDATE, UNSET, BatchTopK, FixedThresholds, Molt, build_layer
from mxd.trainer.utils.distributed import SINGLE_PROCESS
from tests.helpers.runs import layer_config, random_layer

REFERENCE = Path(__file__).parents[2] / "reference"
TRANSCODERS = {"transcoder_topk": "transcoder", "skip_transcoder_topk": "skip-transcoder", "sae_topk": "autoencoder"}
CASES: list[tuple[str, dict[str, Any]]] = [
    *(
        (f"mxd_mlp_{activation}", {"activation": activation, "encoder": "mlp"})
        for activation in ("gelu", "gelu_tanh", "relu")
    ),
    *((f"mxd_glu_{name}", {"activation": name, "encoder": "glu"}) for name in ("sigmoid", "silu")),
    *((name, {"method": method, "num_experts": 96}) for name, method in TRANSCODERS.items()),
]


def relative_error(actual: Tensor, expected: Tensor) -> float:
    return float((actual - expected).detach().norm() / expected.norm())


def parameters_of(golden: dict[str, Tensor], prefix: str, case: str) -> dict[str, Tensor]:
    """Reference tensors under our parameter names. In a GLU, the paper's code applies the activation to W_enc."""
    if case in TRANSCODERS:
        names = {"gate.bias": "b_enc", "direction_NO": "W_dec", "skip.weight": "W_skip.weight"}
        # The autoencoder's one bias is taken from its input and added to its output; transcoders have another there.
        names["output_bias"] = "b_dec_out" if "param.b_dec_out" in golden else "b_dec"
        found = {ours: golden[f"{prefix}.{theirs}"] for ours, theirs in names.items() if f"{prefix}.{theirs}" in golden}
        return found | {"gate.weight": golden[f"{prefix}.W_enc"].T}
    activated, plain = ("encoder_gate", "encoder") if "glu" in case else ("encoder", "")
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


@pytest.mark.parametrize(("case", "settings"), CASES)
def test_matches_the_papers_code(case: str, settings: dict[str, Any]) -> None:
    golden = load_file(REFERENCE / f"{case}.safetensors")
    layer = build_layer(layer_config(widths=(24, 40, 24), **{"num_experts": 64, "k": 6} | settings))
    layer.load_state_dict(parameters_of(golden, "param", case))
    output, target = layer(golden["in.x"]), golden["in.target"]
    assert relative_error(output.output_TO, golden["out.y"]) < 1e-5
    dense_TN = torch.zeros(32, layer.config.num_experts)
    activations_TN = dense_TN.scatter(1, output.routing.indices_TK, output.routing.activations_TK)
    assert relative_error(activations_TN, golden["out.acts"]) < 1e-5
    loss = ((output.output_TO - target).square() / target.norm(dim=1, keepdim=True)).mean()
    assert relative_error(loss, golden["out.ref_mse"]) < 1e-5
    if case not in TRANSCODERS:
        assert relative_error(normalized_mse(output.output_TO, target), golden["out.nmse"]) < 1e-5
    loss.backward()
    for name, gradient in parameters_of(golden, "grad_ref_mse", case).items():
        actual = layer.get_parameter(name).grad
        assert actual is not None
        assert relative_error(actual, gradient) < 1e-5, name


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


K = 5


def batch_topk(encoder: Encoder = "glu") -> BatchTopK:
    layer = random_layer("batch-topk-mxd", encoder=encoder)
    assert isinstance(layer, BatchTopK)
    return layer


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
def test_training_keeps_the_largest_scores_of_the_batch(encoder: Encoder) -> None:
    layer, x_TI = batch_topk(encoder), torch.randn(40, 12)
    routing = layer.route(x_TI)
    scores_TN = layer.gate(x_TI).relu()
    least = scores_TN.flatten().topk(40 * K).values[-1]
    chosen_TN = torch.zeros_like(scores_TN).scatter_add(1, routing.indices_TK, routing.activations_TK)
    torch.testing.assert_close(chosen_TN, torch.where(scores_TN >= least, scores_TN, 0.0))
    counts_T = (routing.activations_TK > 0).sum(1)
    assert counts_T.sum() == 40 * K
    assert counts_T.min() < K < counts_T.max() <= 4 * K


def test_the_threshold_is_a_running_mean_of_the_smallest_kept_score() -> None:
    layer = batch_topk()
    assert layer.threshold.item() == UNSET
    with torch.no_grad():
        layer.route(torch.randn(40, 12))  # as starting values do: nothing is learnt
    assert layer.threshold.item() == UNSET
    smallest = []
    for _ in range(3):
        activations_TK = layer.route(torch.randn(40, 12)).activations_TK
        smallest.append(activations_TK[activations_TK > 0].min().item())
    expected = smallest[0]
    for value in smallest[1:]:
        expected += THRESHOLD_UPDATE * (value - expected)
    assert layer.threshold.item() == pytest.approx(expected, rel=1e-5)


def test_at_inference_tokens_are_independent() -> None:
    layer, x_TI = batch_topk(), torch.randn(40, 12)
    for _ in range(4):
        layer.route(torch.randn(200, 12))
    layer.eval()
    together = layer.route(x_TI).activations_TK
    alone = torch.cat([layer.route(row_1I).activations_TK for row_1I in x_TI.split(1)])
    torch.testing.assert_close(together, alone)
    assert K * 0.7 < (together > 0).sum(1).float().mean() < K * 1.3
    assert together[together > 0].min() >= layer.threshold


METHODS: tuple[Method, ...] = ("jumprelu-transcoder", "jumprelu-skip-transcoder")


@pytest.mark.parametrize("method", METHODS)
def test_features_above_their_threshold_are_active(method: Method) -> None:
    layer, x_TI = random_layer(method), torch.randn(50, 12)
    assert isinstance(layer, FixedThresholds)
    layer.threshold_N.uniform_(0, 1)
    scores_TN = layer.gate(x_TI)
    routing = layer.route(x_TI)
    active_TN = scores_TN > layer.threshold_N
    assert 0.05 < active_TN.float().mean() < 0.6
    assert torch.equal(routing.activations_TK, torch.where(active_TN, scores_TN, 0))
    layer.threshold_N.zero_()
    assert torch.equal(layer.route(x_TI).activations_TK, scores_TN.relu())


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
def test_a_relu_mxd_equals_an_mxd_with_k_equal_to_n(encoder: Encoder) -> None:
    relu, reference = random_layer("relu-mxd", encoder=encoder), random_layer(encoder=encoder, k=33)
    reference.load_state_dict(relu.state_dict())
    x_TI = torch.randn(7, 12)
    output, expected = relu(x_TI), reference(x_TI)
    close = partial(torch.testing.assert_close, rtol=1e-5, atol=3e-5)  # sums in another order
    close(output.output_TO, expected.output_TO)
    assert torch.equal((output.routing.activations_TK > 0).sum(1), (expected.routing.activations_TK > 0).sum(1))
    # The columns of the reference's routing are in another order.
    close(relu.decode(relu.dense_output(x_TI), expected.routing), expected.output_TO)
    few = Routing(*(values[:, :4] for values in expected.routing))
    close(relu.decode(relu.dense_output(x_TI), few), reference.decode(expected.dense_TM, few))


def molt() -> Molt:
    layer = random_layer("molt", rank=8)
    assert isinstance(layer, Molt)
    return layer


def test_ranks_halve_as_their_number_doubles() -> None:
    ranks = transform_ranks(33, 32)
    assert ranks[:31] == (32,) + 2 * (16,) + 4 * (8,) + 8 * (4,) + 16 * (2,)
    assert ranks[31:] == (32, 16)
    assert min(transform_ranks(31, 3)) == 1


def test_the_table_holds_each_transforms_top_direction() -> None:
    layer = molt()
    for expert in (0, 5, 32):
        left, values, _ = torch.linalg.svd(layer.expert_matrix(expert).T)
        actual_O = layer.table[expert]
        torch.testing.assert_close(actual_O.norm(), values[0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close((actual_O @ left[:, 0]).abs(), values[0], atol=1e-4, rtol=1e-4)
