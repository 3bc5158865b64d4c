"""Gate activations whose scores are sums over the rows of several tables, with a sparse backward pass.

Shapes: T tokens, I input width, K active experts, R rows of a table.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mxd.trainer.layers.ops import ops_for
from mxd.trainer.layers.ops.torch_ops import pairs_by_expert


class ScorePart(NamedTuple):
    """Table of a gate, and the row that contributes to the score of each selected expert."""

    weight_RI: Tensor
    bias_R: Tensor
    rows_TK: Tensor
    """Row indices, int64."""


class _Coefficients(torch.autograd.Function):
    """ReLU of precomputed scores; the backward pass distributes gradients to the selected rows."""

    @staticmethod
    def forward(ctx: Any, x_TI: Tensor, scores_TK: Tensor, *parts: Tensor) -> Tensor:
        coefficients_TK = scores_TK.relu()
        ctx.save_for_backward(x_TI, coefficients_TK, *parts)
        return coefficients_TK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_TK: Tensor) -> tuple[Tensor | None, ...]:
        x_TI, coefficients_TK, *tensors = ctx.saved_tensors
        ops = ops_for(x_TI)
        scores_TK = torch.where(coefficients_TK > 0, gradient_TK, 0.0)
        to_x: Tensor | None = None
        to_parts: list[Tensor | None] = []
        for first in range(0, len(tensors), 3):
            weight_RI, bias_R, rows_TK = tensors[first : first + 3]
            to_parts += [*ops.sum_by_expert(x_TI, scores_TK, pairs_by_expert(rows_TK, len(bias_R))), None]
            if ctx.needs_input_grad[0]:
                added_TI = ops.mix_rows(scores_TK, rows_TK, weight_RI)
                to_x = added_TI if to_x is None else to_x + added_TI
        return to_x, None, *to_parts


def coefficients(x_TI: Tensor, scores_TK: Tensor, *parts: ScorePart) -> Tensor:
    """Gate activations of selected experts, [T, K]: ReLU of scores that sum x w + b over their rows of all parts.

    Args:
        x_TI: gate input.
        scores_TK: the sums, computed without a graph; gradients flow only to the selected rows.
        parts: tables and row indices.
    """
    if not torch.is_grad_enabled():
        return scores_TK.relu()
    tensors = [tensor for part in parts for tensor in part]
    activations: Tensor = _Coefficients.apply(x_TI, scores_TK, *tensors)  # type: ignore[no-untyped-call]
    return activations
