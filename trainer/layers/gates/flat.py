"""Flat gate: every expert has its own row of weights, and all experts are scored.

Shapes: T tokens, I input width, N experts, K active experts, E some of the experts.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mxd.trainer.layers.gates.base import ExpertSelection, Gate, set_rows
from mxd.trainer.layers.ops import gate


class FlatGate(Gate, nn.Linear):
    """a = TopK(relu(x G + b)); ``weight`` is [N, I]."""

    def __init__(self, input_width: int, num_experts: int) -> None:
        nn.Linear.__init__(self, input_width, num_experts)
        self.input_width, self.num_experts = input_width, num_experts
        nn.init.zeros_(self.bias)

    def choose(self, x_TI: Tensor, k: int) -> tuple[Tensor, Tensor]:
        return gate(x_TI, self.weight, self.bias, k)

    def rows(self, experts: ExpertSelection) -> Tensor:
        return self.weight.detach()[experts]

    def initialize(self, directions_NI: Tensor, mean_I: Tensor) -> Tensor:
        set_rows(self, directions_NI, mean_I)
        return torch.arange(self.num_experts, device=directions_NI.device)
