"""The two sparse operations of a layer of experts, with hand-written backward passes.

Only K of N experts are active on a token, so nothing here is as wide as T x N except the scores themselves, which the
gate needs to find the largest. Both backward passes sort the (token, expert) pairs by expert once and then sum the
rows of each expert with ``embedding_bag``, whose bags are experts: no atomics, no gradient of the scores as wide as N,
and the same result on every run.

Shapes: T tokens, I input width, O output width, N experts, K active, P = T * K pairs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

PAIRS_PER_CHUNK = 1 << 16
"""Pairs whose rows are gathered at a time; bounds the temporaries to this many rows."""


class _Bags(NamedTuple):
    order_P: Tensor
    offsets_N1: Tensor

    @classmethod
    def by_expert(cls, indices_TK: Tensor, num_experts: int) -> _Bags:
        pairs_P = indices_TK.reshape(-1)
        counts_N = torch.bincount(pairs_P, minlength=num_experts)
        offsets_N1 = F.pad(counts_N.cumsum(0), (1, 0))
        return cls(torch.argsort(pairs_P, stable=True), offsets_N1)

    def sum_rows(self, rows_TW: Tensor, weights_TK: Tensor) -> Tensor:
        """[N, W]: for each expert, the rows of its tokens, weighted."""
        token_P = self.order_P.div(weights_TK.shape[1], rounding_mode="floor")
        return F.embedding_bag(
            token_P,
            rows_TW,
            self.offsets_N1,
            mode="sum",
            per_sample_weights=weights_TK.reshape(-1)[self.order_P],
            include_last_offset=True,
        )


def row_dots(left_TW: Tensor, table_NW: Tensor, indices_TK: Tensor) -> Tensor:
    """[T, K]: dot product of each token's row with the table's row of each of its experts."""
    tokens = max(1, PAIRS_PER_CHUNK // indices_TK.shape[1])
    return torch.cat(
        [
            torch.bmm(table_NW[chunk_TK], rows_TW.unsqueeze(2)).squeeze(2)
            for rows_TW, chunk_TK in zip(left_TW.split(tokens), indices_TK.split(tokens), strict=True)
        ]
    )


class _Mix(torch.autograd.Function):
    """sum_k a_tk C[i_tk]: the mixed scaling C^T a."""

    @staticmethod
    def forward(ctx: Any, coefficients_TK: Tensor, indices_TK: Tensor, table_NO: Tensor) -> Tensor:
        ctx.save_for_backward(coefficients_TK, indices_TK, table_NO)
        return F.embedding_bag(indices_TK, table_NO, mode="sum", per_sample_weights=coefficients_TK)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_TO: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
        coefficients_TK, indices_TK, table_NO = ctx.saved_tensors
        gradient_TO = gradient_TO.contiguous()
        to_coefficients = to_table = None
        if ctx.needs_input_grad[0]:
            to_coefficients = row_dots(gradient_TO, table_NO, indices_TK)
        if ctx.needs_input_grad[2]:
            to_table = _Bags.by_expert(indices_TK, table_NO.shape[0]).sum_rows(gradient_TO, coefficients_TK)
        return to_coefficients, None, to_table


class _Gate(torch.autograd.Function):
    """The K largest of relu(x G^T + b), with their places."""

    @staticmethod
    def forward(ctx: Any, x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, k: int) -> tuple[Tensor, Tensor]:
        # relu keeps the order, so it is applied to the K largest alone.
        coefficients_TK, indices_TK = torch.addmm(bias_N, x_TI, weight_NI.T).topk(k, dim=1)
        coefficients_TK = coefficients_TK.relu_()
        ctx.save_for_backward(x_TI, weight_NI, coefficients_TK, indices_TK)
        ctx.mark_non_differentiable(indices_TK)
        return coefficients_TK, indices_TK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_TK: Tensor, _indices: Tensor) -> tuple[Tensor | None, ...]:
        x_TI, weight_NI, coefficients_TK, indices_TK = ctx.saved_tensors
        scores_TK = torch.where(coefficients_TK > 0, gradient_TK, 0.0)
        to_x = to_weight = to_bias = None
        if ctx.needs_input_grad[0]:
            to_x = F.embedding_bag(indices_TK, weight_NI, mode="sum", per_sample_weights=scores_TK)
        if ctx.needs_input_grad[1]:
            to_weight = _Bags.by_expert(indices_TK, weight_NI.shape[0]).sum_rows(x_TI, scores_TK)
        if ctx.needs_input_grad[2]:
            to_bias = torch.bincount(indices_TK.reshape(-1), scores_TK.reshape(-1), weight_NI.shape[0])
        return to_x, to_weight, to_bias, None


def mix(coefficients_TK: Tensor, indices_TK: Tensor, table_NO: Tensor) -> Tensor:
    """Mix the rows of ``table_NO`` by coefficient: ``sum_k a_tk table[i_tk]``, shape [T, O]."""
    mixed: Tensor = _Mix.apply(coefficients_TK, indices_TK, table_NO)  # type: ignore[no-untyped-call]
    return mixed


def gate(x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Coefficients and experts of the K largest scores, relu applied: two tensors [T, K], largest first.

    A coefficient of 0 means that fewer than K scores were positive; its expert is not active.
    """
    chosen: tuple[Tensor, Tensor] = _Gate.apply(x_TI, weight_NI, bias_N, k)  # type: ignore[no-untyped-call]
    return chosen
