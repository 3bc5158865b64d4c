"""What every gate is: scores of N experts that are linear in the input, of which K are let through.

However its weights are held, an expert's score is x g + b with a row g of its own, so two experts of any gate can be
compared by their directions, and any gate can start at wanted ones.

Shapes: T tokens, I input width, N experts, K active, E some of the experts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

Some = Tensor | slice
"""Ids of some experts, on the CPU, or a range of them."""


class Gate(nn.Module, ABC):
    """Chooses experts."""

    def __init__(self, input_width: int, num_experts: int) -> None:
        super().__init__()
        self.input_width, self.num_experts = input_width, num_experts

    @abstractmethod
    def choose(self, x_TI: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Coefficients and experts of the K largest scores, relu applied: two tensors [T, K], largest first.

        A coefficient of 0 marks an expert that is not active.
        """

    @abstractmethod
    def rows(self, some: Some) -> Tensor:
        """Directions of some experts, [E, I]: a flat gate with these rows would give the same scores."""

    @abstractmethod
    def start(self, directions_NI: Tensor, mean_I: Tensor) -> Tensor:
        """Take directions as the experts' own, as nearly as may be, so that at the mean input all scores are 0.

        Returns:
            Which of the directions each expert was given, [N]: gates that group their experts choose the order.
        """

    def check(self) -> None:
        """See that weights from a file make sense.

        Raises:
            UserError: they do not.
        """


@torch.no_grad()
def point(linear: nn.Linear, rows_EI: Tensor, mean_I: Tensor) -> None:
    """Give a linear map these rows, and the biases with which it is 0 at the mean."""
    linear.weight.copy_(rows_EI)
    linear.bias.copy_(-(linear.weight @ mean_I.to(linear.weight)))
