"""Layers saved, loaded and sharded, parameters matched by every method, ranks and routing shares."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from torch import nn

from mxd.trainer.config.layer import CONFIG_FILE, Encoder, LayerConfig, Method, method_traits, methods, stored_bits
from mxd.trainer.config.training import TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.layers.mxd import (
    MxD,
    Routing,
    drawn_bias,
    drawn_weight,
    measure_ranks,
    normalized_mse,
    output_routing_share,
    read_weights,
)
from mxd.trainer.layers.ops import Shards
from mxd.trainer.layers.tensor_files import GROUP, OFFSETS, PACKED, SCALE, dequantize, join_parts, read_rows, save_part
from mxd.trainer.layers.variants import build_layer, load_layer, matched_num_experts
from mxd.trainer.utils.distributed import ProcessGroup, init_process_group
from scripts.quantize import quantize, quantize_file
from tests.helpers.processes import run_processes
from tests.helpers.runs import layer_config, random_layer


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
    output_TO, routing, dense_TM, _ = layer(torch.randn(7, layer.config.input_width))
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


@pytest.mark.parametrize("kind", [LayerConfig, TrainConfig])
def test_files_of_earlier_versions_are_read_if_their_gate_is_flat(kind: type[LayerConfig | TrainConfig]) -> None:
    values: dict[str, Any] = random_layer().config.model_dump()
    if kind is TrainConfig:
        values = {"name": "x", "language_model": "y", "layer": 0, "text": {"dataset": "z"}, "tokens": 1}
    old = {"gate": {"gate": "flat", "groups": None, "top_groups": None}, "next_token_weight": 0.5}
    assert kind.model_validate({**values, **old}) == kind.model_validate(values)
    with pytest.raises(ValidationError, match="gate"):
        kind.model_validate({**values, "gate": {"gate": "two-level", "groups": 8, "top_groups": 2}})


def matched_config(method: Method, encoder: Encoder, widths: tuple[int, int, int] = (24, 40, 24)) -> LayerConfig:
    rank = 6 if method_traits(method).rank else None
    config = layer_config(method, widths, num_experts=1, k=4, encoder=encoder, rank=rank)
    return config.model_copy(update={"num_experts": matched_num_experts(config, widths[0])})


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
@pytest.mark.parametrize("method", methods("core", "experimental"))
def test_all_methods_match_the_transcoders_parameters(method: Method, encoder: Encoder) -> None:
    own = build_layer(matched_config(method, encoder)).num_parameters
    expected = build_layer(matched_config("transcoder", encoder)).num_parameters
    expected += 24 * 24 if method == "skip-transcoder" else 0
    slack = 24 + 1 + 24
    if method == "molt":
        slack = 24 + 1 + 6 * (24 + 24)  # the largest transform
    if method in ("mxd", "batch-topk-mxd") and encoder == "mlp":
        slack = 32 * 24 + 1  # the paper's counts are off by so many
    assert abs(own - expected) <= slack


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


@pytest.mark.parametrize("zeros", [0, 4])
@pytest.mark.parametrize(("hidden", "output"), [(20, 16), (16, 16), (10, 16)])
def test_ranks_match_numpy(hidden: int, output: int, zeros: int) -> None:
    layer, experts = mxd(hidden, output), [0, 3, 7]
    layer.scaling_NO.data[3, :zeros] = 0.0
    actual = measure_ranks(layer, experts)
    matrices = [layer.expert_matrix(expert).detach().double().numpy() for expert in experts]
    singular = [np.linalg.svd(matrix, compute_uv=False) for matrix in matrices]
    assert actual.normalized_rank == np.mean([np.linalg.matrix_rank(it) for it in matrices]) / min(hidden, output)
    assert actual.stable_rank == pytest.approx(np.mean([(it**2).sum() / it[0] ** 2 for it in singular]), rel=1e-6)
    assert actual.min_singular_value == pytest.approx(min(it[-1] / it[0] for it in singular), rel=1e-5, abs=1e-9)
    assert actual.min_scaling == layer.scaling_NO.abs().min().item()


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


def test_a_quantised_layer_loads_unless_its_shapes_are_wrong(tmp_path: Path) -> None:
    wide = random_layer(widths=(64, 128, 64), num_experts=200)
    wide.save(tmp_path)
    whole, small = tmp_path / "layer.safetensors", tmp_path / "small.safetensors"
    quantize_file(whole, small)
    assert small.stat().st_size < 0.25 * whole.stat().st_size
    assert [stored_bits(path) for path in (whole, small, tmp_path / "missing")] == [None, 5, None]
    loaded = read_weights(small, wide)
    for name, value in wide.state_dict().items():
        assert loaded[name].dtype == value.dtype
        torch.testing.assert_close(loaded[name], value, atol=value.abs().max().item() / 29, rtol=0)
    tensors = load_file(small)
    for suffix in (PACKED, SCALE):
        name = next(name for name in tensors if name.endswith(suffix))
        save_file(tensors | {name: tensors[name][:-1].clone()}, tmp_path / "wrong.safetensors")
        with pytest.raises(UserError, match="do not match the layer config"):
            read_weights(tmp_path / "wrong.safetensors", wide)


@pytest.mark.parametrize("processes", [2, 3])
def test_a_sharded_layer_matches_the_unsharded_one(processes: int) -> None:
    done = run_processes(compare_many_layers, processes=processes)
    assert [one.returncode for one in done] == [0] * processes, [one.stderr for one in done]


def test_a_method_without_top_k_cannot_be_sharded() -> None:
    config = random_layer().config.model_copy(update={"method": "relu-mxd", "k": 33})
    with pytest.raises(UserError, match="relu-mxd cannot be sharded"):
        build_layer(config, Shards(0, 2, 33))


@pytest.mark.parametrize("drawn_at_a_time", [1, 20, 1000])
def test_random_weights_are_those_of_a_linear_map(drawn_at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mxd.trainer.layers.mxd.DRAWN_AT_A_TIME", drawn_at_a_time)
    torch.manual_seed(3)
    linear = nn.Linear(9, 37)
    torch.manual_seed(3)
    assert torch.equal(drawn_weight(9, 37), linear.weight)
    assert torch.equal(drawn_bias(9, 37), linear.bias)
    torch.manual_seed(3)
    assert torch.equal(drawn_weight(9, 37, slice(30, 37), slice(2, 5)), linear.weight[30:, 2:5])


@pytest.mark.parametrize("method", ["mxd", "transcoder", "skip-transcoder", "autoencoder"])
@pytest.mark.parametrize("encoder", ["mlp", "glu"])
def test_a_slice_has_the_random_weights_of_the_whole(
    method: str, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = random_layer().config.model_copy(update={"method": method, "encoder": encoder, "num_experts": 34})

    def weights(shards: Shards | None) -> dict[str, torch.Tensor]:
        torch.manual_seed(5)
        layer = build_layer(config, shards)
        found: dict[str, torch.Tensor] = dict(layer.named_parameters())
        return found | {"next": torch.rand(1)}

    whole = weights(None)
    monkeypatch.setattr("mxd.trainer.layers.mxd.DRAWN_AT_A_TIME", 64)
    parts = [weights(Shards(rank, 3, 34)) for rank in range(3)]
    for name, value in whole.items():
        if name in build_layer(config).expert_tables:
            assert torch.equal(torch.cat([part[name] for part in parts]), value), name
        else:
            assert all(torch.equal(part[name], value) for part in parts), name


def save_parts(folder: Path, rows: int, processes: int) -> torch.Tensor:
    """Write a table in parts and return it."""
    table = torch.arange(3.0 * rows).view(rows, 3)
    for rank in range(processes):
        shards = Shards(rank, processes, rows)
        own = {"table": table[shards.rows(rank)], "step": torch.tensor(5.0)}
        save_part(own, ["table"], shards, folder / "layer.safetensors")
    return table


@pytest.mark.parametrize(("rows", "processes"), [(10, 3), (2, 2), (7, 1)])
def test_parts_are_read_by_rows_and_join_to_the_file_of_a_single_process(
    rows: int, processes: int, tmp_path: Path
) -> None:
    table = save_parts(tmp_path, rows, processes)
    for own in [slice(None), *(slice(first, end) for first in range(rows) for end in range(first + 1, rows + 1))]:
        found = read_rows(tmp_path / "layer.safetensors", ["table"], own)
        assert torch.equal(found["table"], table[own])
        assert found["step"] == 5
    join_parts(tmp_path / "layer.safetensors", tmp_path / "joined.safetensors")
    save_file({"table": table, "step": torch.tensor(5.0)}, tmp_path / "whole.safetensors")
    assert (tmp_path / "joined.safetensors").read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


def test_a_missing_part_is_an_error(tmp_path: Path) -> None:
    save_parts(tmp_path, 10, 3)
    (tmp_path / "layer-00002-of-00003.safetensors").unlink()
    with pytest.raises(ValueError, match="2 of 3 files"):
        read_rows(tmp_path / "layer.safetensors")


@pytest.mark.parametrize(
    "header",
    [
        "[" * 100_000,
        "[]",
        '{"table": 3}',
        '{"table": {"saved_offsets": [1e999]}}',
        '{"table": {"saved_offsets": ["x"]}}',
        *(json.dumps({"table": {"saved_offsets": [first, 0]}}) for first in (-1, 0, 3, 6, 10**30, None)),
    ],
)
def test_a_hostile_header_is_an_error(header: str, tmp_path: Path) -> None:
    save_parts(tmp_path, 10, 2)
    save_file({"table": torch.zeros(5, 3)}, tmp_path / "layer-00002-of-00002.safetensors", {OFFSETS: header})
    with pytest.raises(ValueError, match=r"DCP_SHARDING_INFO|not there|Expecting|invalid literal|are missing"):
        read_rows(tmp_path / "layer.safetensors")


def check(group: ProcessGroup, case: int) -> None:
    """A layer, a batch and targets that depend only on the case number, identical in every process."""
    generator = torch.Generator().manual_seed(case)
    num_experts = int(torch.randint(group.world_size, 60, (), generator=generator))
    k = int(torch.randint(1, min(num_experts, 9) + 1, (), generator=generator))
    methods: tuple[Method, ...] = ("mxd", "mxd", "mxd", ("transcoder", "skip-transcoder")[case // 4 % 2])
    encoder = ("mlp", "glu")[case % 2]
    whole = random_layer(methods[case % 4], encoder=encoder, num_experts=num_experts, k=k, seed=case)
    # Fewer than K positive scores on many tokens.
    whole.gate.bias.data -= 1.5
    tokens = 6 * group.world_size
    x_TI = torch.randn(tokens, whole.config.input_width, generator=generator)
    y_TO = torch.randn(tokens, whole.config.output_width, generator=generator)
    share = slice(group.rank * 6, (group.rank + 1) * 6)

    x_whole, x_share = x_TI.clone().requires_grad_(), x_TI[share].clone().requires_grad_()
    answer = whole(x_whole)
    normalized_mse(answer.output_TO, y_TO).backward()

    shards = Shards(group.rank, group.world_size, num_experts)
    sharded = build_layer(whole.config, shards)
    rows = {
        name: shards.rows(group.rank) if name in whole.expert_tables else slice(None) for name in whole.state_dict()
    }
    sharded.load_state_dict({name: value[rows[name]] for name, value in whole.state_dict().items()})
    ours = sharded(x_share)
    normalized_mse(ours.output_TO, y_TO[share]).backward()

    close = torch.testing.assert_close
    close(ours.output_TO, answer.output_TO[share])
    close(ours.routing.activations_TK, answer.routing.activations_TK[share])
    active = ours.routing.activations_TK > 0
    assert torch.equal(ours.routing.indices_TK[active], answer.routing.indices_TK[share][active])
    assert x_share.grad is not None and x_whole.grad is not None
    close(x_share.grad / group.world_size, x_whole.grad[share], rtol=1e-4, atol=1e-6)
    for name, parameter in sharded.named_parameters():
        wanted = whole.get_parameter(name).grad
        assert parameter.grad is not None and wanted is not None
        is_table = name in sharded.expert_tables
        assert not is_table or len(parameter) < num_experts or group.is_single
        found = parameter.grad / group.world_size if is_table else group.mean_(parameter.grad)
        close(found, wanted[rows[name]], rtol=1e-4, atol=1e-6)


def compare_many_layers() -> None:
    """Run 40 cases in one of several processes."""
    with init_process_group() as group:
        assert group.world_size == int(os.environ["WORLD_SIZE"])
        for case in range(40):
            check(group, case)
