"""The two sparse operations of a layer of experts, with hand-written backward passes.

Only K of N experts are active on a token, so nothing here is as wide as T x N but the scores, of which a block is made
at a time. The backward passes sort the (token, expert) pairs by expert and then sum the rows of each expert: no
atomics, no gradient as wide as N for a token, and the same result on every run. Where relu has made a score zero, its
gradient is zero too.

What they are made of is chosen by device: ``triton_ops`` on a GPU that has Triton, ``stock_ops`` anywhere else.

Shapes: T tokens, I input width, O output width, N experts, K active.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from trainer import few_rows
from trainer.layers import stock_ops


def ops_for(tensor: Tensor) -> ModuleType:
    """The module whose operations are the fastest where ``tensor`` is."""
    return _triton_ops() if tensor.is_cuda and find_spec("triton") is not None else stock_ops


@cache
def _triton_ops() -> ModuleType:
    from trainer.layers import triton_ops

    return triton_ops


class _Mix(torch.autograd.Function):
    """sum_k a_tk C[i_tk]: the mixed scaling C^T a."""

    @staticmethod
    def forward(ctx: Any, coefficients_TK: Tensor, indices_TK: Tensor, table_NO: Tensor) -> Tensor:
        ctx.save_for_backward(coefficients_TK, indices_TK, table_NO)
        mixed_TO: Tensor = ops_for(table_NO).mix_rows(coefficients_TK, indices_TK, table_NO)
        return mixed_TO

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_TO: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
        coefficients_TK, indices_TK, table_NO = ctx.saved_tensors
        ops = ops_for(table_NO)
        gradient_TO = gradient_TO.contiguous()
        to_coefficients = to_table = None
        if ctx.needs_input_grad[0]:
            to_coefficients = ops.row_dots(gradient_TO, table_NO, indices_TK)
        if ctx.needs_input_grad[2]:
            to_table = ops.sum_by_expert(gradient_TO, coefficients_TK, indices_TK, table_NO.shape[0])
        return to_coefficients, None, to_table


class _Gate(torch.autograd.Function):
    """The K largest of relu(x G^T + b), with their places."""

    @staticmethod
    def forward(ctx: Any, x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, k: int) -> tuple[Tensor, Tensor]:
        # relu keeps the order, so it is applied to the K largest alone.
        coefficients_TK, indices_TK = ops_for(x_TI).largest_scores(x_TI, weight_NI, bias_N, k)
        coefficients_TK = coefficients_TK.relu_()
        ctx.save_for_backward(x_TI, weight_NI, coefficients_TK, indices_TK)
        ctx.mark_non_differentiable(indices_TK)
        return coefficients_TK, indices_TK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_TK: Tensor, _indices: Tensor) -> tuple[Tensor | None, ...]:
        x_TI, weight_NI, coefficients_TK, indices_TK = ctx.saved_tensors
        ops = ops_for(x_TI)
        scores_TK = torch.where(coefficients_TK > 0, gradient_TK, 0.0)
        to_x = to_weight = to_bias = None
        if ctx.needs_input_grad[0]:
            to_x = ops.mix_rows(scores_TK, indices_TK, weight_NI)
        if ctx.needs_input_grad[1]:
            to_weight = ops.sum_by_expert(x_TI, scores_TK, indices_TK, weight_NI.shape[0])
        if ctx.needs_input_grad[2]:
            ones_T1 = scores_TK.new_ones(len(scores_TK), 1)
            to_bias = ops.sum_by_expert(ones_T1, scores_TK, indices_TK, weight_NI.shape[0]).squeeze(1)
        return to_x, to_weight, to_bias, None


def mix(coefficients_TK: Tensor, indices_TK: Tensor, table_NO: Tensor) -> Tensor:
    """Mix the rows of ``table_NO`` by coefficient: ``sum_k a_tk table[i_tk]``, shape [T, O]."""
    mixed: Tensor = _Mix.apply(coefficients_TK, indices_TK, table_NO)  # type: ignore[no-untyped-call]
    return mixed


def gate(x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Coefficients and experts of the K largest scores, relu applied: two tensors [T, K], largest first.

    A coefficient of 0 means that fewer than K scores were positive; its expert is not active.
    """
    if few_rows.turns(x_TI):  # then nothing has to find its way back
        scores_TK, indices_TK = few_rows.linear(x_TI, weight_NI, bias_N).topk(k, dim=1)
        return scores_TK.relu_(), indices_TK
    chosen: tuple[Tensor, Tensor] = _Gate.apply(x_TI, weight_NI, bias_N, k)  # type: ignore[no-untyped-call]
    return chosen
