"""Base class for gates: N expert scores that are linear in the input, of which the K largest are selected.

However a gate stores its weights, an expert's score is x g + b with its own row g. So experts of any gate can be
compared by their directions, and any gate can be initialised with given directions.

Shapes: T tokens, I input width, N experts, K active experts, E some of the experts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

ExpertSelection = Tensor | slice
"""Ids of some experts on the CPU, or a range of ids."""


class Gate(nn.Module, ABC):
    """Selects experts."""

    def __init__(self, input_width: int, num_experts: int) -> None:
        super().__init__()
        self.input_width, self.num_experts = input_width, num_experts

    @abstractmethod
    def choose(self, x_TI: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Gate activations and ids of the K experts with the largest scores: two tensors [T, K], largest first.

        A gate activation of 0 marks an inactive expert.
        """

    @abstractmethod
    def rows(self, experts: ExpertSelection) -> Tensor:
        """Directions of some experts, [E, I]: a flat gate with these rows computes the same scores."""

    @abstractmethod
    def initialize(self, directions_NI: Tensor, mean_I: Tensor) -> Tensor:
        """Use the directions as the experts' rows, as closely as possible, with all scores 0 at the mean input.

        Returns:
            Index of the direction that each expert got, [N]; gates that group experts choose the order.
        """


@torch.no_grad()
def set_rows(linear: nn.Linear, rows_EI: Tensor, mean_I: Tensor) -> None:
    """Set the rows of a linear map, and the biases with which its output is 0 at the mean input."""
    linear.weight.copy_(rows_EI)
    linear.bias.copy_(-(linear.weight @ mean_I.to(linear.weight)))
