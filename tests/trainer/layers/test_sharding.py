"""Sharded layers match the unsharded layer: outputs, routing and all gradients."""

from __future__ import annotations

import pytest

from mxd.trainer.errors import UserError
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.layers.sharding import Shards
from tests.helpers.forking import sharded_process
from tests.helpers.forking.torchrun import run_processes
from tests.helpers.layers import random_layer


@pytest.mark.parametrize("processes", [2, 3])
def test_a_sharded_layer_matches_the_unsharded_one(processes: int) -> None:
    done = run_processes(sharded_process.main, processes=processes)
    assert [one.returncode for one in done] == [0] * processes, [one.stderr for one in done]


@pytest.mark.parametrize(("num_experts", "world"), [(10, 3), (2, 2), (21_490, 8), (5, 1)])
def test_every_expert_is_in_exactly_one_shard(num_experts: int, world: int) -> None:
    bounds = [Shards(rank, world, num_experts).bounds(rank) for rank in range(world)]
    assert [expert for first, end in bounds for expert in range(first, end)] == list(range(num_experts))


def test_a_method_without_top_k_cannot_be_sharded() -> None:
    config = random_layer().config.model_copy(update={"method": "relu-mxd", "k": 33})
    with pytest.raises(UserError, match="relu-mxd cannot be sharded"):
        build_layer(config).shard(Shards(0, 2, 33))
