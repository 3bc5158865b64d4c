"""Revival of dead experts."""

from __future__ import annotations

import torch

from mxd.trainer.experimental.revival import revive
from tests.helpers.layers import flat_gate, random_layer


def test_a_revived_expert_is_active_on_its_token() -> None:
    layer = random_layer(num_experts=33, k=5)
    x_TI = torch.randn(64, 12, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        flat_gate(layer).bias[:4] = -100.0
    target_TO = torch.randn(64, 10, generator=torch.Generator().manual_seed(2))
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.0)
    output = layer(x_TI)
    (output.output_TO - target_TO).square().mean().backward()
    optimizer.step()
    before = flat_gate(layer).weight.detach().clone()
    revive(layer, optimizer, torch.arange(33) < 4, x_TI, output, target_TO)
    routing = layer(x_TI).routing
    assert {0, 1, 2, 3} <= set(routing.indices_TK[routing.coefficients_TK > 0].tolist())
    assert torch.equal(flat_gate(layer).weight[4:], before[4:])
    assert not optimizer.state[flat_gate(layer).weight]["exp_avg"][:4].any()
