"""The gate: N expert scores that are linear in the input, of which the K largest are selected.

Shapes: T tokens, I input width, N experts, K active experts, E some of the experts.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mxd.trainer.layers.ops import gate

ExpertSelection = Tensor | slice
"""Ids of some experts on the CPU, or a range of ids."""


class Gate(nn.Linear):
    """a = TopK(relu(x G + b)); ``weight`` is [N, I]."""

    def __init__(self, input_width: int, num_experts: int) -> None:
        super().__init__(input_width, num_experts)
        nn.init.zeros_(self.bias)

    def choose(self, x_TI: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Gate activations and ids of the K experts with the largest scores: two tensors [T, K], largest first.

        A gate activation of 0 marks an inactive expert.
        """
        return gate(x_TI, self.weight, self.bias, k)

    def rows(self, experts: ExpertSelection) -> Tensor:
        """Directions of some experts, [E, I]."""
        return self.weight.detach()[experts]

    @torch.no_grad()
    def initialize(self, directions_NI: Tensor, mean_I: Tensor) -> None:
        """Use the directions as the experts' rows, with all scores 0 at the mean input."""
        self.weight.copy_(directions_NI)
        self.bias.copy_(-(self.weight @ mean_I.to(self.weight)))
