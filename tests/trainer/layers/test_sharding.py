"""Sharded layers match the unsharded layer: outputs, routing and all gradients."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from mxd.trainer.config import Method
from mxd.trainer.errors import UserError
from mxd.trainer.layers import base
from mxd.trainer.layers.base import normalized_mse
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.layers.sharding import Shards
from mxd.trainer.layers.tensor_files import OFFSETS, join_parts, read_rows, save_part
from mxd.trainer.utils.distributed import ProcessGroup, init_process_group
from tests.helpers.forking.torchrun import run_processes
from tests.helpers.layers import random_layer


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
    monkeypatch.setattr(base, "DRAWN_AT_A_TIME", drawn_at_a_time)
    torch.manual_seed(3)
    linear = nn.Linear(9, 37)
    torch.manual_seed(3)
    assert torch.equal(base.drawn_weight(9, 37), linear.weight)
    assert torch.equal(base.drawn_bias(9, 37), linear.bias)
    torch.manual_seed(3)
    assert torch.equal(base.drawn_weight(9, 37, slice(30, 37), slice(2, 5)), linear.weight[30:, 2:5])


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
    monkeypatch.setattr(base, "DRAWN_AT_A_TIME", 64)
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


CASES = 40


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
    assert x_share.grad is not None
    assert x_whole.grad is not None
    close(x_share.grad / group.world_size, x_whole.grad[share], rtol=1e-4, atol=1e-6)
    for name, parameter in sharded.named_parameters():
        wanted = whole.get_parameter(name).grad
        assert parameter.grad is not None
        assert wanted is not None
        if name in sharded.expert_tables:
            assert len(parameter) < num_experts or group.is_single
            wanted = wanted[shards.rows(group.rank)]
            found = parameter.grad / group.world_size
        else:
            found = group.mean_(parameter.grad)
        close(found, wanted, rtol=1e-4, atol=1e-6)


def compare_many_layers() -> None:
    """Run all cases in one of several processes."""
    with init_process_group() as group:
        assert group.world_size == int(os.environ["WORLD_SIZE"])
        for case in range(CASES):
            check(group, case)
