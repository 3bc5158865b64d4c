"""The sparse operations as Triton kernels, for NVIDIA and AMD GPUs: the same functions as ``stock_ops``.

Each output row is written by one program that adds in a fixed order, so the same inputs give the same bits each time
and nothing need be zeroed first. An expert's pairs are read 32 at a time, so that one which is active on every token of
a batch of 4,096 costs 128 turns of one program and holds up none of the others. No size needs to divide another: what
hangs over is masked. Nothing waits for the device. Without a GPU they run under ``TRITON_INTERPRET=1``.

Shapes: T tokens, I input width, W width of a row, N experts, K active, P = T * K pairs.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

PAIRS = 32
"""Rows that a program reads at a time."""
COLUMNS = 128
"""Columns that a program answers for."""


@triton.jit
def _mix_kernel(weights, indices, table, mixed, k, width, COLUMNS: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < width
    total = tl.zeros([COLUMNS], dtype=tl.float32)
    for place in range(k):
        expert = tl.load(indices + token * k + place)
        weight = tl.load(weights + token * k + place)
        total += weight * tl.load(table + expert * width + columns, mask=inside, other=0.0)
    tl.store(mixed + token * width + columns, total, mask=inside)


@triton.jit
def _dots_kernel(left, table, indices, dots, k, width, PAIRS: tl.constexpr, COLUMNS: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * PAIRS + tl.arange(0, PAIRS)
    wanted = places < k
    experts = tl.load(indices + token * k + places, mask=wanted, other=0)
    total = tl.zeros([PAIRS], dtype=tl.float32)
    for first in range(0, width, COLUMNS):
        columns = first + tl.arange(0, COLUMNS)
        inside = columns < width
        row = tl.load(left + token * width + columns, mask=inside, other=0.0)
        both = wanted[:, None] & inside[None, :]
        rows = tl.load(table + experts[:, None] * width + columns[None, :], mask=both, other=0.0)
        total += tl.sum(rows * row[None, :], axis=1)
    tl.store(dots + token * k + places, total, mask=wanted)


@triton.jit
def _sum_kernel(rows, weights, order, offsets, sums, k, width, PAIRS: tl.constexpr, COLUMNS: tl.constexpr):
    expert = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < width
    start = tl.load(offsets + expert)
    end = tl.load(offsets + expert + 1)
    total = tl.zeros([COLUMNS], dtype=tl.float32)
    for first in range(start, end, PAIRS):
        places = first + tl.arange(0, PAIRS)
        wanted = places < end
        pairs = tl.load(order + places, mask=wanted, other=0)
        weight = tl.load(weights + pairs, mask=wanted, other=0.0)
        both = wanted[:, None] & inside[None, :]
        values = tl.load(rows + (pairs // k)[:, None] * width + columns[None, :], mask=both, other=0.0)
        total += tl.sum(values * weight[:, None], axis=0)
    tl.store(sums + expert * width + columns, total, mask=inside)


def largest_scores(x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and places of the K largest of x G^T + b on each token, two tensors [T, K], largest first.

    Where matrix products are bfloat16 (``torch.autocast``), the experts are chosen by such scores, and the coefficients
    of the chosen are then computed again in float32: K of N products, so that only the choice near a tie is rounded.
    """
    # A hand-written fusion of product and selection has to beat the vendor's product, which is nearly all of the time.
    scores_TN = torch.addmm(bias_N, x_TI, weight_NI.T)
    values_TK, indices_TK = scores_TN.topk(k, dim=1)
    if scores_TN.dtype == x_TI.dtype:
        return values_TK, indices_TK
    exact_TK = row_dots(x_TI, weight_NI, indices_TK) + bias_N[indices_TK]
    order_TK = exact_TK.argsort(dim=1, descending=True, stable=True)
    return exact_TK.gather(1, order_TK), indices_TK.gather(1, order_TK)


def mix_rows(weights_TK: Tensor, indices_TK: Tensor, table_NW: Tensor) -> Tensor:
    """[T, W]: for each token, the rows of its experts, weighted."""
    weights_TK, indices_TK, table_NW = weights_TK.contiguous(), indices_TK.contiguous(), table_NW.contiguous()
    tokens, k = indices_TK.shape
    width = table_NW.shape[1]
    mixed_TW = table_NW.new_empty(tokens, width)
    grid = (tokens, triton.cdiv(width, COLUMNS))
    _mix_kernel[grid](weights_TK, indices_TK, table_NW, mixed_TW, k, width, COLUMNS=COLUMNS)
    return mixed_TW


def row_dots(left_TW: Tensor, table_NW: Tensor, indices_TK: Tensor) -> Tensor:
    """[T, K]: dot product of each token's row with the table's row of each of its experts."""
    left_TW, table_NW, indices_TK = left_TW.contiguous(), table_NW.contiguous(), indices_TK.contiguous()
    tokens, k = indices_TK.shape
    dots_TK = left_TW.new_empty(tokens, k)
    grid = (tokens, triton.cdiv(k, PAIRS))
    _dots_kernel[grid](left_TW, table_NW, indices_TK, dots_TK, k, table_NW.shape[1], PAIRS=PAIRS, COLUMNS=COLUMNS)
    return dots_TK


def sum_by_expert(rows_TW: Tensor, weights_TK: Tensor, indices_TK: Tensor, num_experts: int) -> Tensor:
    """[N, W]: for each expert, the rows of its tokens, weighted."""
    rows_TW, weights_TK = rows_TW.contiguous(), weights_TK.contiguous()
    width = rows_TW.shape[1]
    sorted_P, order_P = indices_TK.reshape(-1).sort(stable=True)
    # Not bincount, which waits for the device to learn its own size.
    bounds_N1 = torch.arange(num_experts + 1, device=sorted_P.device, dtype=sorted_P.dtype)
    offsets_N1 = torch.searchsorted(sorted_P, bounds_N1)
    sums_NW = rows_TW.new_empty(num_experts, width)
    grid = (num_experts, triton.cdiv(width, COLUMNS))
    _sum_kernel[grid](
        rows_TW, weights_TK, order_P, offsets_N1, sums_NW, indices_TK.shape[1], width, PAIRS=PAIRS, COLUMNS=COLUMNS
    )
    return sums_NW
