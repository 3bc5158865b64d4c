"""Linear maps of a few rows, as a step of generation has them, at the speed of reading the weights once.

For 2 to 48 rows the stock product x W^T of PyTorch on a CPU takes up to three times as long as W x^T, which is the same
sums: there the weights stand where the library expects the large matrix. One row is fast as it is, and so are many.

Rows that are alike get answers that are alike, to the bit, wherever they stand: products are made of whole tiles of
rows. What is left over of a tile, the library adds up in another order on some processors, and then two arms without
edits would differ by rounding.

Shapes: R rows, I input width, O output width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

FEW = range(2, 49)
"""Rows for which W x^T is the faster; measured on two cores of an AMD EPYC."""


TILE = 4
"""Rows that the library works on together. Fewer are one tile, and alike."""


def whole_tiles(x_RI: Tensor) -> Tensor:
    """The rows, and rows of zeros after them up to a multiple of ``TILE``."""
    rows = len(x_RI)
    return x_RI if rows < TILE or rows % TILE == 0 else nn.functional.pad(x_RI, (0, 0, 0, -rows % TILE))


def turns(x_RI: Tensor) -> bool:
    """Whether the product with these rows is faster turned round."""
    return x_RI.shape[0] in FEW and x_RI.device.type == "cpu" and not torch.is_grad_enabled()


def linear(x_RI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    """x W^T + b, [R, O], for rows that ``turns`` approves of."""
    x_IR = whole_tiles(x_RI).t()
    turned_OR = weight_OI @ x_IR if bias_O is None else torch.addmm(bias_O.unsqueeze(1), weight_OI, x_IR)
    return turned_OR[:, : len(x_RI)].t().contiguous()


class FewRowsLinear(nn.Linear):
    """A linear module that turns its product round where that is faster. Not made: ``turn`` makes modules into it."""

    def forward(self, input: Tensor) -> Tensor:
        """x W^T + b, as every linear module."""
        if input.device.type != "cpu" or torch.is_grad_enabled():
            return super().forward(input)
        x_RI = input.reshape(-1, self.in_features)
        if turns(x_RI):
            answer_RO = linear(x_RI, self.weight, self.bias)
        else:
            answer_RO = super().forward(whole_tiles(x_RI))[: len(x_RI)]
        return answer_RO.view(*input.shape[:-1], self.out_features)


def turn(module: nn.Module) -> None:
    """Let every plain linear module in ``module`` be fast for a few rows; weights and names stay what they are."""
    for child in module.modules():
        if type(child) is nn.Linear:
            child.__class__ = FewRowsLinear
