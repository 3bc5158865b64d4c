"""Layers saved and loaded, parameters matched by every method, ranks and routing shares."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from mxd.trainer.config import Encoder, LayerConfig, Method, TrainConfig
from mxd.trainer.config.layer import CONFIG_FILE, method_traits, methods, stored_bits
from mxd.trainer.errors import UserError
from mxd.trainer.layers.base import Gate, Routing, SparseLayer, normalized_mse, read_weights
from mxd.trainer.layers.mxd import MxD, measure_ranks, output_routing_share
from mxd.trainer.layers.registry import build_layer, load_layer, matched_num_experts
from mxd.trainer.layers.tensor_files import GROUP, PACKED, SCALE, dequantize
from scripts.quantize import quantize, quantize_file
from tests.helpers.layers import layer_config, random_layer


@pytest.mark.parametrize("method", methods("core", "experimental", "imported"))
def test_a_loaded_layer_equals_the_saved_one(tmp_path: Path, method: Method) -> None:
    layer = random_layer(method, encoder="mlp", activation="gelu")
    for buffer in layer.buffers():
        buffer.uniform_(0, 1)
    layer.save(tmp_path)
    again = load_layer(tmp_path)
    assert again.config == layer.config
    torch.testing.assert_close(again.state_dict(), layer.state_dict(), rtol=0, atol=0)
    x = torch.randn(3, layer.config.input_width)
    assert torch.equal(layer.eval()(x).output_TO, again.eval()(x).output_TO)


@pytest.mark.parametrize("content", ["", "[1]", '{"k": 0}', "\x00"])
def test_damaged_config_is_reported(tmp_path: Path, content: str) -> None:
    random_layer().save(tmp_path)
    (tmp_path / CONFIG_FILE).write_text(content)
    with pytest.raises(UserError, match="Invalid layer config"):
        load_layer(tmp_path)


@pytest.mark.parametrize("method", ["mxd", "transcoder"])
def test_weights_that_move_in_inference_mode_still_have_gradients(method: Method) -> None:
    """As on an accelerator, where the first request that needs a layer moves it."""
    layer = random_layer(method)
    with torch.inference_mode():
        layer.to(torch.float64)
    layer(torch.ones(3, layer.config.input_width, dtype=torch.float64)).output_TO.sum().backward()
    assert all(weight.grad is not None and weight.dtype == torch.float64 for weight in layer.parameters())


@pytest.mark.parametrize("method", ["mxd", "transcoder", "autoencoder", "molt"])
@pytest.mark.parametrize("k", [2, 9, 50])
def test_a_pass_with_another_number_of_experts_is_that_of_a_layer_with_this_k(method: Method, k: int) -> None:
    """As in random-K training, which also draws numbers above K."""
    layer = random_layer(method)
    expected = random_layer(method, k=min(k, layer.config.num_experts))
    x_TI = torch.randn(4, layer.config.input_width, generator=torch.Generator().manual_seed(0))
    assert torch.equal(layer(x_TI, k).output_TO, expected(x_TI).output_TO)


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
@pytest.mark.parametrize("method", methods("core", "experimental", "imported"))
def test_the_contributions_of_single_experts_add_up_to_the_output(method: Method, encoder: Encoder) -> None:
    layer = random_layer(method, encoder=encoder)
    dense_TM, routing, output_TO = output_of(layer)
    singles = [Routing(c[:, None], i[:, None]) for c, i in zip(*(value.T for value in routing), strict=True)]
    parts_KTO = torch.stack([layer.contribution(dense_TM, single) for single in singles])
    nothing = routing._replace(activations_TK=torch.zeros_like(routing.activations_TK))
    twice = Routing(*(torch.cat([values, values], dim=1) for values in routing))
    for actual, expected in (
        (parts_KTO.sum(0) + layer.decode(dense_TM, nothing), output_TO),
        (layer.contribution_norms(dense_TM, routing), parts_KTO.norm(dim=2).T),
        (layer.contribution(dense_TM, twice), 2 * parts_KTO.sum(0)),
        (layer.decode_mixed(dense_TM, layer.mixing(routing)), layer.decode(dense_TM, routing)),
    ):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


RANKS = {"mxd": 10, "batch-topk-mxd": 10, "relu-mxd": 10, "low-rank-mxd": 3, "tensor-ring-mxd": 9, "hidden-mxd": 10}


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
@pytest.mark.parametrize("method", [*RANKS, "molt"])
def test_an_expert_adds_what_its_matrix_makes_of_a_token(method: Method, encoder: Encoder) -> None:
    layer: Any = random_layer(method, encoder=encoder, rank=8 if method == "molt" else 3)
    x_TI = torch.randn(7, 12)
    for expert in (0, 1, 30, 32):
        one = Routing(torch.full((7, 1), 0.5), torch.full((7, 1), expert))
        matrix = layer.expert_matrix(expert)
        expected_TO = (x_TI if method in ("molt", "hidden-mxd") else layer.encode(x_TI)) @ matrix
        if method == "hidden-mxd":
            expected_TO += layer.decoder(layer.encoder.bias * layer.scaling_NO[expert])
        actual_TO = layer.contribution(layer.dense_output(x_TI), one)
        torch.testing.assert_close(actual_TO, 0.5 * expected_TO, rtol=1e-4, atol=1e-4)
        assert torch.linalg.matrix_rank(matrix) == (layer.ranks[expert] if method == "molt" else RANKS[method])


def output_of(layer: SparseLayer) -> tuple[Tensor, Routing, Tensor]:
    """Dense output, routing and output of random tokens."""
    output = layer(torch.randn(7, layer.config.input_width))
    return output.dense_TM, output.routing, output.output_TO


WIDTH = 9


@given(tokens=st.integers(1, 30), num_experts=st.integers(1, 61), k=st.integers(1, 12), seed=st.integers(0, 10_000))
def test_selection_and_gradients_match_dense_scores(tokens: int, num_experts: int, k: int, seed: int) -> None:
    generator, k = torch.Generator().manual_seed(seed), min(k, num_experts)
    gate = Gate(WIDTH, num_experts).double()
    for parameter in gate.parameters():
        parameter.data.normal_(generator=generator)
    x_TI = torch.randn(tokens, WIDTH, dtype=torch.float64, generator=generator).requires_grad_()
    upstream_TN = torch.randn(tokens, num_experts, dtype=torch.float64, generator=generator)
    activations_TK, ids_TK = gate.choose(x_TI, k)
    assert bool((activations_TK.diff(dim=1) <= 0).all())
    scores_TN = F.linear(x_TI, gate.weight, gate.bias)
    kept_TN = scores_TN.detach() >= scores_TN.detach().topk(k, dim=1).values[:, -1:]
    expected_TN = scores_TN.relu() * kept_TN
    actual_TN = torch.zeros_like(expected_TN).scatter_add(1, ids_TK, activations_TK)
    torch.testing.assert_close(actual_TN, expected_TN, rtol=1e-9, atol=1e-9)
    actual, expected = (
        torch.autograd.grad((values_TN * upstream_TN).sum(), [x_TI, *gate.parameters()])
        for values_TN in (actual_TN, expected_TN)
    )
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", [LayerConfig, TrainConfig])
def test_files_of_earlier_versions_are_read_if_their_gate_is_flat(kind: type[LayerConfig | TrainConfig]) -> None:
    values: dict[str, Any] = random_layer().config.model_dump()
    if kind is TrainConfig:
        values = {"name": "x", "language_model": "y", "layer": 0, "text": {"dataset": "z"}, "tokens": 1}
    read = kind.model_validate({**values, "gate": {"gate": "flat", "groups": None, "top_groups": None}})
    assert read == kind.model_validate(values)
    with pytest.raises(ValidationError, match="gate"):
        kind.model_validate({**values, "gate": {"gate": "two-level", "groups": 8, "top_groups": 2}})


def matched_config(method: Method, encoder: Encoder, widths: tuple[int, int, int] = (24, 40, 24)) -> LayerConfig:
    rank = 6 if method_traits(method).rank else None
    config = layer_config(method, widths, num_experts=1, k=4, encoder=encoder, rank=rank)
    return config.model_copy(update={"num_experts": matched_num_experts(config, widths[0])})


def parameters(method: Method, encoder: Encoder) -> int:
    return build_layer(matched_config(method, encoder)).num_parameters


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
@pytest.mark.parametrize("method", methods("core", "experimental"))
def test_all_methods_match_the_transcoders_parameters(method: Method, encoder: Encoder) -> None:
    expected = parameters("transcoder", encoder) + (24 * 24 if method == "skip-transcoder" else 0)
    slack = 24 + 1 + 24
    if method == "molt":
        slack = 24 + 1 + 6 * (24 + 24)  # the largest transform
    if method in ("mxd", "batch-topk-mxd") and encoder == "mlp":
        slack = 32 * 24 + 1  # the paper's counts are off by so many
    assert abs(parameters(method, encoder) - expected) <= slack


@pytest.mark.parametrize(
    ("width", "hidden", "encoder", "experts"),
    [(768, 3072, "mlp", 21_490), (1024, 4096, "mlp", 28_658), (2048, 8192, "mlp", 57_330), (3072, 8192, "glu", 86_015)],
)
def test_the_papers_counts(width: int, hidden: int, encoder: Encoder, experts: int) -> None:
    widths = width, hidden, width
    assert matched_config("mxd", encoder, widths=widths).num_experts == experts
    assert matched_config("transcoder", encoder, widths=widths).num_experts == 32 * width


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


def test_errors_are_at_most_half_a_step() -> None:
    weight_RC = torch.randn(20, 192, generator=torch.Generator().manual_seed(0)) * torch.logspace(-6, 3, 20)[:, None]
    weight_RC[3] = 0
    packed_RP, scale_RG = quantize(weight_RC)
    error_RC = (dequantize(packed_RP, scale_RG) - weight_RC).abs()
    # bfloat16 rounds a scale by up to 2^-8, and the largest weight is 16 times that.
    assert (error_RC <= (0.5 + 16 / 256) * scale_RG.float().repeat_interleave(GROUP, dim=1)).all()
    assert packed_RP.nbytes + scale_RG.nbytes == weight_RC.numel() * 5.25 / 8


def test_no_weight_becomes_zero() -> None:
    """Otherwise small scalings would lower the rank of the experts."""
    weight_RC = torch.randn(4, 64, generator=torch.Generator().manual_seed(0)) * torch.logspace(-5, 0, 64)
    assert dequantize(*quantize(weight_RC)).count_nonzero() == weight_RC.numel()


@pytest.fixture
def wide(tmp_path: Path) -> SparseLayer:
    """A layer that is saved in the test's folder."""
    layer = random_layer(widths=(64, 128, 64), num_experts=200)
    layer.save(tmp_path)
    return layer


@pytest.mark.parametrize("suffix", [PACKED, SCALE])
def test_wrong_shapes_are_rejected(wide: SparseLayer, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "layer.safetensors"
    quantize_file(path, path)
    tensors = load_file(path)
    name = next(name for name in tensors if name.endswith(suffix))
    save_file(tensors | {name: tensors[name][:-1].clone()}, path)
    with pytest.raises(UserError, match="do not match the layer config"):
        read_weights(path, wide)


def test_a_quantised_layer_loads(wide: SparseLayer, tmp_path: Path) -> None:
    whole, small = tmp_path / "layer.safetensors", tmp_path / "small.safetensors"
    quantize_file(whole, small)
    assert small.stat().st_size < 0.25 * whole.stat().st_size
    assert [stored_bits(path) for path in (whole, small, tmp_path / "missing")] == [None, 5, None]
    loaded = read_weights(small, wide)
    for name, value in wide.state_dict().items():
        assert loaded[name].dtype == value.dtype
        torch.testing.assert_close(loaded[name], value, atol=value.abs().max().item() / 29, rtol=0)
