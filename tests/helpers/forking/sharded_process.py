"""The processes of the sharding test: many random layers, sharded against whole."""

from __future__ import annotations

import os

import torch

from mxd.trainer.layers.base import SparseLayer, normalized_mse
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.layers.sharding import Shards
from mxd.trainer.utils.distributed import ProcessGroup, init_process_group
from tests.helpers.layers import random_layer

CASES = 40


def check(group: ProcessGroup, case: int) -> None:
    """A layer, a batch and targets that depend only on the case number, identical in every process."""
    generator = torch.Generator().manual_seed(case)
    num_experts = int(torch.randint(group.world_size, 60, (), generator=generator))
    k = int(torch.randint(1, min(num_experts, 9) + 1, (), generator=generator))
    whole = random_layer(("mlp", "glu")[case % 2], num_experts=num_experts, k=k, seed=case)
    if case % 4 == 3:
        whole = other_method(whole, ("transcoder", "skip-transcoder")[case // 4 % 2], generator)
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


def other_method(layer: SparseLayer, method: str, generator: torch.Generator) -> SparseLayer:
    """A random layer of another method, of the same sizes."""
    other = build_layer(layer.config.model_validate(layer.config.model_dump() | {"method": method}))
    for parameter in other.parameters():
        parameter.data.normal_(0, 0.5, generator=generator)
    return other


def main() -> None:
    """Run all cases in one of several processes."""
    with init_process_group() as group:
        assert group.world_size == int(os.environ["WORLD_SIZE"])
        for case in range(CASES):
            check(group, case)
