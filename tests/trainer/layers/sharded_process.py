"""What each process of the test of sharded layers does: many random layers, sharded against whole."""

from __future__ import annotations

import os

import torch

from tests.layers import flat_gate, random_layer
from trainer.distributed import Ranks, joined
from trainer.layers.registry import build_layer
from trainer.layers.sharded import Shards
from trainer.layers.sparse import SparseLayer
from trainer.metrics import normalised_mse

CASES = 40


def check(ranks: Ranks, case: int) -> None:
    """A layer, a batch, and targets that follow from the number of the case alone: the same in every process."""
    generator = torch.Generator().manual_seed(case)
    num_experts = int(torch.randint(ranks.world, 60, (), generator=generator))
    k = int(torch.randint(1, min(num_experts, 9) + 1, (), generator=generator))
    whole = random_layer(("mlp", "glu")[case % 2], num_experts=num_experts, k=k, seed=case)
    if case % 4 == 3:
        whole = other_method(whole, ("transcoder", "skip-transcoder")[case // 4 % 2], generator)
    # Fewer than K positive scores on many tokens.
    flat_gate(whole).bias.data -= 1.5
    tokens = 6 * ranks.world
    x_TI = torch.randn(tokens, whole.config.input_width, generator=generator)
    y_TO = torch.randn(tokens, whole.config.output_width, generator=generator)
    share = slice(ranks.rank * 6, (ranks.rank + 1) * 6)

    x_whole, x_share = x_TI.clone().requires_grad_(), x_TI[share].clone().requires_grad_()
    answer = whole(x_whole)
    normalised_mse(answer.output_TO, y_TO).backward()

    sharded = build_layer(whole.config)
    sharded.load_state_dict(whole.state_dict())
    shards = Shards(ranks.rank, ranks.world, num_experts)
    sharded.keep_part(shards)
    ours = sharded(x_share)
    normalised_mse(ours.output_TO, y_TO[share]).backward()

    close = torch.testing.assert_close
    close(ours.output_TO, answer.output_TO[share])
    close(ours.routing.coefficients_TK, answer.routing.coefficients_TK[share])
    active = ours.routing.coefficients_TK > 0
    assert torch.equal(ours.routing.indices_TK[active], answer.routing.indices_TK[share][active])
    assert x_share.grad is not None
    assert x_whole.grad is not None
    close(x_share.grad / ranks.world, x_whole.grad[share], rtol=1e-4, atol=1e-6)
    for name, parameter in sharded.named_parameters():
        wanted = whole.get_parameter(name).grad
        assert parameter.grad is not None
        assert wanted is not None
        if name in sharded.expert_tables:
            assert len(parameter) < num_experts or ranks.is_alone
            found = shards.whole(parameter.grad) / ranks.world
        else:
            found = ranks.mean_(parameter.grad)
        close(found, wanted, rtol=1e-4, atol=1e-6)


def other_method(layer: SparseLayer, method: str, generator: torch.Generator) -> SparseLayer:
    """A layer of another method, of the same sizes, every parameter random."""
    other = build_layer(layer.config.model_validate(layer.config.model_dump() | {"method": method}))
    for parameter in other.parameters():
        parameter.data.normal_(0, 0.5, generator=generator)
    return other


def main() -> None:
    """All cases, in one of several processes."""
    with joined() as ranks:
        assert ranks.world == int(os.environ["WORLD_SIZE"])
        for case in range(CASES):
            check(ranks, case)
