"""The sparse operations as Triton kernels for NVIDIA and AMD GPUs, with the interface of ``torch_ops``.

One program writes each output row and adds in a fixed order, so results are deterministic and need no zeroing. A
program reads an expert's pairs 32 at a time: an expert that is active on all 4,096 tokens of a batch takes 128
iterations of one program and delays no other. Sizes need not be multiples of the block sizes; the remainder is masked.
Nothing synchronises with the GPU. Without a GPU, the kernels run under ``TRITON_INTERPRET=1``.

Shapes: T tokens, I input width, W row width, N experts, K active experts, P = T * K pairs.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

PAIRS = 32
"""Number of rows that a program reads at once."""
COLUMNS = 128
"""Number of columns that a program writes."""


@triton.jit
def _mix_kernel(weights, indices, table, mixed, k, width, COLUMNS: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < width
    total = tl.zeros([COLUMNS], dtype=tl.float32)
    for column in range(k):
        expert = tl.load(indices + token * k + column)
        weight = tl.load(weights + token * k + column)
        total += weight * tl.load(table + expert * width + columns, mask=inside, other=0.0)
    tl.store(mixed + token * width + columns, total, mask=inside)


@triton.jit
def _dots_kernel(left, table, indices, dots, k, width, PAIRS: tl.constexpr, COLUMNS: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    columns_k = tl.program_id(1) * PAIRS + tl.arange(0, PAIRS)
    inside_k = columns_k < k
    experts = tl.load(indices + token * k + columns_k, mask=inside_k, other=0)
    total = tl.zeros([PAIRS], dtype=tl.float32)
    for first in range(0, width, COLUMNS):
        columns = first + tl.arange(0, COLUMNS)
        inside = columns < width
        row = tl.load(left + token * width + columns, mask=inside, other=0.0)
        both = inside_k[:, None] & inside[None, :]
        rows = tl.load(table + experts[:, None] * width + columns[None, :], mask=both, other=0.0)
        total += tl.sum(rows * row[None, :], axis=1)
    tl.store(dots + token * k + columns_k, total, mask=inside_k)


@triton.jit
def _sum_kernel(rows, weights, order, offsets, sums, k, width, PAIRS: tl.constexpr, COLUMNS: tl.constexpr):
    expert = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < width
    start = tl.load(offsets + expert)
    end = tl.load(offsets + expert + 1)
    total = tl.zeros([COLUMNS], dtype=tl.float32)
    for first in range(start, end, PAIRS):
        positions = first + tl.arange(0, PAIRS)
        valid = positions < end
        pairs = tl.load(order + positions, mask=valid, other=0)
        weight = tl.load(weights + pairs, mask=valid, other=0.0)
        both = valid[:, None] & inside[None, :]
        values = tl.load(rows + (pairs // k)[:, None] * width + columns[None, :], mask=both, other=0.0)
        total += tl.sum(values * weight[:, None], axis=0)
    tl.store(sums + expert * width + columns, total, mask=inside)


def largest_scores(x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and expert ids of the K largest of x G^T + b for each token: two tensors [T, K], largest first.

    If matrix products are in bfloat16 (``torch.autocast``), they only select the experts. The K scores of the selected
    experts are then recomputed in float32, so rounding affects only near ties.
    """
    # A fused product and top-k would have to beat the vendor's product, which takes nearly all of the time.
    scores_TN = torch.addmm(bias_N, x_TI, weight_NI.T)
    values_TK, indices_TK = scores_TN.topk(k, dim=1)
    if scores_TN.dtype == x_TI.dtype:
        return values_TK, indices_TK
    exact_TK = row_dots(x_TI, weight_NI, indices_TK) + bias_N[indices_TK]
    order_TK = exact_TK.argsort(dim=1, descending=True, stable=True)
    return exact_TK.gather(1, order_TK), indices_TK.gather(1, order_TK)


def mix_rows(weights_TK: Tensor, indices_TK: Tensor, table_NW: Tensor) -> Tensor:
    """Weighted sum of the rows of each token's experts, [T, W]."""
    weights_TK, indices_TK, table_NW = weights_TK.contiguous(), indices_TK.contiguous(), table_NW.contiguous()
    tokens, k = indices_TK.shape
    width = table_NW.shape[1]
    mixed_TW = table_NW.new_empty(tokens, width)
    grid = (tokens, triton.cdiv(width, COLUMNS))
    _mix_kernel[grid](weights_TK, indices_TK, table_NW, mixed_TW, k, width, COLUMNS=COLUMNS)
    return mixed_TW


def row_dots(left_TW: Tensor, table_NW: Tensor, indices_TK: Tensor) -> Tensor:
    """Dot product of each token's row with the table row of each of its experts, [T, K]."""
    left_TW, table_NW, indices_TK = left_TW.contiguous(), table_NW.contiguous(), indices_TK.contiguous()
    tokens, k = indices_TK.shape
    dots_TK = left_TW.new_empty(tokens, k)
    grid = (tokens, triton.cdiv(k, PAIRS))
    _dots_kernel[grid](left_TW, table_NW, indices_TK, dots_TK, k, table_NW.shape[1], PAIRS=PAIRS, COLUMNS=COLUMNS)
    return dots_TK


def sum_by_expert(rows_TW: Tensor, weights_TK: Tensor, indices_TK: Tensor, num_experts: int) -> Tensor:
    """Weighted sum of the rows of each expert's tokens, [N, W]."""
    rows_TW, weights_TK = rows_TW.contiguous(), weights_TK.contiguous()
    width = rows_TW.shape[1]
    sorted_P, order_P = indices_TK.reshape(-1).sort(stable=True)
    # bincount would synchronise with the GPU to determine its size.
    bounds_N1 = torch.arange(num_experts + 1, device=sorted_P.device, dtype=sorted_P.dtype)
    offsets_N1 = torch.searchsorted(sorted_P, bounds_N1)
    sums_NW = rows_TW.new_empty(num_experts, width)
    grid = (num_experts, triton.cdiv(width, COLUMNS))
    _sum_kernel[grid](
        rows_TW, weights_TK, order_P, offsets_N1, sums_NW, indices_TK.shape[1], width, PAIRS=PAIRS, COLUMNS=COLUMNS
    )
    return sums_NW
