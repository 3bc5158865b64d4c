"""A layer whose experts are spread over processes is the layer: outputs, routing and every gradient."""

from __future__ import annotations

import pytest

from tests.layers import random_layer
from tests.torchrun import ranks
from tests.trainer.layers import sharded_process
from trainer.errors import UserError
from trainer.layers.registry import build_layer
from trainer.layers.sharded import Shards


@pytest.mark.parametrize("processes", [2, 3])
def test_a_sharded_layer_is_the_layer(processes: int) -> None:
    done = ranks(sharded_process.main, processes=processes)
    assert [one.returncode for one in done] == [0] * processes, [one.stderr for one in done]


@pytest.mark.parametrize(("num_experts", "world"), [(10, 3), (2, 2), (21_490, 8), (5, 1)])
def test_every_expert_is_in_one_part(num_experts: int, world: int) -> None:
    bounds = [Shards(rank, world, num_experts).bounds(rank) for rank in range(world)]
    assert [expert for first, end in bounds for expert in range(first, end)] == list(range(num_experts))


def test_a_method_without_top_k_is_refused() -> None:
    config = random_layer().config.model_copy(update={"method": "relu-mxd", "k": 33})
    with pytest.raises(UserError, match="relu-mxd cannot be spread"):
        build_layer(config).keep_part(Shards(0, 2, 33))
