"""The flat gate: every expert has a row of weights, and all are scored.

Shapes: T tokens, I input width, N experts, K active, E some of the experts.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer.few_rows import FewRowsLinear
from trainer.layers.gates.base import Gate, Some, point
from trainer.layers.kernels import gate


class FlatGate(Gate, FewRowsLinear):
    """a = TopK(relu(x G + b)); ``weight`` is [N, I]."""

    def __init__(self, input_width: int, num_experts: int) -> None:
        FewRowsLinear.__init__(self, input_width, num_experts)
        self.input_width, self.num_experts = input_width, num_experts
        nn.init.zeros_(self.bias)

    def choose(self, x_TI: Tensor, k: int) -> tuple[Tensor, Tensor]:
        return gate(x_TI, self.weight, self.bias, k)

    def rows(self, some: Some) -> Tensor:
        return self.weight.detach()[some]

    def start(self, directions_NI: Tensor, mean_I: Tensor) -> Tensor:
        point(self, directions_NI, mean_I)
        return torch.arange(self.num_experts, device=directions_NI.device)
