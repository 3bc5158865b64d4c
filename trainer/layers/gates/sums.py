"""Coefficients that are sums of scores with rows of one or more tables, and the way back to the rows of the chosen.

Shapes: T tokens, I input width, K active, R rows of a table.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from trainer.layers.kernels import ops_for


class Part(NamedTuple):
    """A table of a gate, and which of its rows is part of the score of each chosen expert."""

    weight_RI: Tensor
    bias_R: Tensor
    rows_TK: Tensor
    """int64."""


class _Coefficients(torch.autograd.Function):
    """relu of scores that are known already; only the way back has anything to do."""

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
        ones_T1 = scores_TK.new_ones(len(scores_TK), 1)
        to_x: Tensor | None = None
        to_parts: list[Tensor | None] = []
        for first in range(0, len(tensors), 3):
            weight_RI, bias_R, rows_TK = tensors[first : first + 3]
            wanted = ctx.needs_input_grad[2 + first : 4 + first]
            to_parts += [
                ops.sum_by_expert(x_TI, scores_TK, rows_TK, len(weight_RI)) if wanted[0] else None,
                ops.sum_by_expert(ones_T1, scores_TK, rows_TK, len(bias_R)).squeeze(1) if wanted[1] else None,
                None,
            ]
            if ctx.needs_input_grad[0]:
                added_TI = ops.mix_rows(scores_TK, rows_TK, weight_RI)
                to_x = added_TI if to_x is None else to_x + added_TI
        return to_x, None, *to_parts


def coefficients(x_TI: Tensor, scores_TK: Tensor, *parts: Part) -> Tensor:
    """relu of the scores of chosen experts, [T, K], each the sum of x w + b over its rows of the parts' tables.

    Args:
        x_TI: what was scored.
        scores_TK: these sums, made outside of any graph; the gradient goes to the chosen rows alone.
        parts: the tables.
    """
    if not torch.is_grad_enabled():
        return scores_TK.relu()
    tensors = [tensor for part in parts for tensor in part]
    found: Tensor = _Coefficients.apply(x_TI, scores_TK, *tensors)  # type: ignore[no-untyped-call]
    return found
