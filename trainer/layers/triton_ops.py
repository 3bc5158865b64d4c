"""The sparse operations as Triton kernels for NVIDIA and AMD GPUs, with the interface of ``ops``.

One program writes each output row and adds in a fixed order, so results are deterministic and need no zeroing. Tiles
have few rows and many columns: each thread owns its columns, so threads exchange nothing, and an expert with one token
wastes little. Sums are in float32, whatever the dtype of the rows. Row offsets are 64-bit. Sizes need not be multiples
of the tiles; the remainder is masked. Nothing synchronises with the GPU. Without a GPU, the kernels run under
``TRITON_INTERPRET=1``.

Shapes: T tokens, I input width, W row width, N experts, K active experts, P = T * K pairs, B experts per block.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from mxd.trainer.config.training import GPU_SCORES

if TYPE_CHECKING:
    from mxd.trainer.layers.ops import PairsByExpert

MIN_BLOCKED_EXPERTS = 4096
"""Number of experts from which the largest scores are found block by block."""
PAIRS = 8
"""Number of rows that a program reads at once to add them."""
DOT_PAIRS, DOT_COLUMNS = 16, 128
"""Rows and columns of them that a program multiplies at once."""
COLUMNS_PER_WARP = 128
"""Columns of a warp that reads 16 bytes of float32 per thread."""


@triton.jit
def sum_kernel(
    rows, weights, ids, offsets, sums, totals, k, width, PAIRS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Weighted sum of rows[ids[p]] over the pairs p of each segment: K of a token, or by offsets those of an expert."""
    segment = tl.program_id(0).to(tl.int64)
    if offsets is None:
        start = segment * k
        end = start + k
    else:
        start = tl.load(offsets + segment).to(tl.int64)
        end = tl.load(offsets + segment + 1).to(tl.int64)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < width
    total = tl.zeros([COLUMNS], dtype=tl.float32)
    for first in range(start, end, PAIRS):
        positions = first + tl.arange(0, PAIRS)
        valid = positions < end
        weight = tl.load(weights + positions, mask=valid, other=0.0).to(tl.float32)
        row = tl.load(ids + positions, mask=valid, other=0).to(tl.int64)
        both = valid[:, None] & inside[None, :]
        values = tl.load(rows + row[:, None] * width + columns[None, :], mask=both, other=0.0).to(tl.float32)
        total += tl.sum(values * weight[:, None], axis=0)
    tl.store(sums + segment * width + columns, total, mask=inside)
    if totals is not None:  # noqa: SIM102 - decided when compiled, the inner condition when run
        if tl.program_id(1) == 0:
            sum_of_weights = 0.0
            for first in range(start, end, PAIRS):
                positions = first + tl.arange(0, PAIRS)
                weight = tl.load(weights + positions, mask=positions < end, other=0.0).to(tl.float32)
                sum_of_weights += tl.sum(weight, axis=0)
            tl.store(totals + segment, sum_of_weights)


@triton.jit
def dots_kernel(left, table, ids, dots, k, width, PAIRS: tl.constexpr, COLUMNS: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    columns_k = tl.program_id(1) * PAIRS + tl.arange(0, PAIRS)
    inside_k = columns_k < k
    row = tl.load(ids + token * k + columns_k, mask=inside_k, other=0).to(tl.int64)
    total = tl.zeros([PAIRS, COLUMNS], dtype=tl.float32)
    for first in range(0, width, COLUMNS):
        columns = first + tl.arange(0, COLUMNS)
        inside = columns < width
        own = tl.load(left + token * width + columns, mask=inside, other=0.0).to(tl.float32)
        both = inside_k[:, None] & inside[None, :]
        values = tl.load(table + row[:, None] * width + columns[None, :], mask=both, other=0.0).to(tl.float32)
        total += values * own[None, :]
    tl.store(dots + token * k + columns_k, tl.sum(total, axis=1), mask=inside_k)


def tile(width: int) -> tuple[int, int]:
    """Columns of a program and its warps: the largest of 512, 256 and 128 columns that masks the fewest columns."""
    columns = min((512, 256, 128), key=lambda size: -width % size)
    return columns, columns // COLUMNS_PER_WARP


def tokens_at_a_time(num_experts: int) -> int:
    """Number of tokens whose scores are in memory at once."""
    return max(1, GPU_SCORES // num_experts)  # each block of tokens reads the weights of all experts


def largest_scores(x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and expert ids of the K largest of x G^T + b for each token: two tensors [T, K], largest first. If matrix
    products are in bfloat16 (``torch.autocast``), they only select the experts. The K scores of the selected experts
    are then recomputed in float32, so rounding affects only near ties."""
    tokens = tokens_at_a_time(len(weight_NI))
    blocks = [blocked_topk(torch.addmm(bias_N, x_BI, weight_NI.T), k) for x_BI in x_TI.split(tokens)]
    values_TK, indices_TK = (torch.cat(parts) for parts in zip(*blocks, strict=True))
    if values_TK.dtype == x_TI.dtype:
        return values_TK, indices_TK
    exact_TK = row_dots(x_TI, weight_NI, indices_TK) + bias_N[indices_TK]
    order_TK = exact_TK.argsort(dim=1, descending=True, stable=True)
    return exact_TK.gather(1, order_TK), indices_TK.gather(1, order_TK)


def blocked_topk(scores_TN: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and columns of the K largest scores of each row, largest first, in one pass over the scores. A block that
    holds one of the K largest has a maximum that is at least as large, and so are at most K blocks. So the K blocks
    with the largest maxima hold the K largest, whereas ``topk`` reads all scores several times."""
    count = scores_TN.shape[1]
    size = 1 << isqrt(count // k).bit_length()  # near sqrt(N / K), for which maxima and candidates are fewest
    blocks = count // size
    if count < MIN_BLOCKED_EXPERTS or blocks <= k:
        return scores_TN.topk(k, dim=1)
    whole_TN, rest_TR = scores_TN.split((blocks * size, count % size), dim=1)
    whole_TNB = whole_TN.unflatten(1, (blocks, size))
    best_TK = whole_TNB.amax(dim=2).topk(k, dim=1, sorted=False).indices
    candidates_TKB = whole_TNB.gather(1, best_TK.unsqueeze(2).expand(-1, -1, size))
    values_TK, places_TK = torch.cat((candidates_TKB.flatten(1), rest_TR), dim=1).topk(k, dim=1)
    starts_TK = F.pad(best_TK, (0, 1), value=blocks) * size  # the rest follows the candidates
    return values_TK, starts_TK.gather(1, places_TK // size) + places_TK % size


def mix_rows(weights_TK: Tensor, indices_TK: Tensor, table_NW: Tensor) -> Tensor:
    """Weighted sum of the rows of each token's experts, [T, W]. Raises ValueError if the tensors do not fit
    together."""
    _check_pairs(weights_TK, indices_TK, table_NW)
    mixed_TW = table_NW.new_empty(len(indices_TK), table_NW.shape[1])
    _sum(table_NW, weights_TK.contiguous(), indices_TK.contiguous(), None, mixed_TW, None, indices_TK.shape[1])
    return mixed_TW


def row_dots(left_TW: Tensor, table_NW: Tensor, indices_TK: Tensor) -> Tensor:
    """Dot product of each token's row with the table row of each of its experts, [T, K]. Raises ValueError if the
    tensors do not fit together."""
    _check_pairs(left_TW, indices_TK, table_NW)
    if left_TW.shape[1] != table_NW.shape[1]:
        raise ValueError(f"Rows must have one width, but have {left_TW.shape[1]} and {table_NW.shape[1]} columns.")
    left_TW, table_NW, indices_TK = left_TW.contiguous(), table_NW.contiguous(), indices_TK.contiguous()
    tokens, k = indices_TK.shape
    dots_TK = left_TW.new_empty(tokens, k)
    grid = (tokens, triton.cdiv(k, DOT_PAIRS))
    if dots_TK.numel():
        with torch.cuda.device_of(table_NW):  # Triton launches on the thread's current device
            dots_kernel[grid](
                left_TW, table_NW, indices_TK, dots_TK, k, table_NW.shape[1], PAIRS=DOT_PAIRS, COLUMNS=DOT_COLUMNS
            )
    return dots_TK


def sum_by_expert(rows_TW: Tensor, weights_TK: Tensor, pairs: PairsByExpert) -> tuple[Tensor, Tensor]:
    """Weighted sum of the rows of each expert's tokens, [N, W], and the sum of the weights alone, [N]. Raises
    ValueError if the tensors do not fit together."""
    _check_pairs(weights_TK, pairs.tokens_P, rows_TW)
    num_experts = len(pairs.offsets_N1) - 1
    sums_NW, totals_N = rows_TW.new_empty(num_experts, rows_TW.shape[1]), rows_TW.new_empty(num_experts)
    weights_P = weights_TK.reshape(-1)[pairs.order_P]
    _sum(rows_TW, weights_P, pairs.tokens_P, pairs.offsets_N1, sums_NW, totals_N, 0)
    return sums_NW, totals_N


def _sum(
    rows: Tensor, weights: Tensor, ids: Tensor, offsets: Tensor | None, sums: Tensor, totals: Tensor | None, k: int
) -> None:
    segments, width = sums.shape
    columns, num_warps = tile(width)
    if segments == 0:
        return
    with torch.cuda.device_of(sums):  # Triton launches on the thread's current device
        sum_kernel[(segments, max(1, triton.cdiv(width, columns)))](
            rows.contiguous(), weights, ids, offsets, sums, totals, k, width,
            PAIRS=PAIRS, COLUMNS=columns, num_warps=num_warps,
        )  # fmt: skip


def _check_pairs(values: Tensor, ids: Tensor, rows: Tensor) -> None:
    """Check what the kernels rely on without looking at values, which would wait for the GPU."""
    if len({values.device, ids.device, rows.device}) > 1:
        raise ValueError(f"Tensors must be on one device, but are on {values.device}, {ids.device} and {rows.device}.")
    if ids.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"Ids must be int32 or int64, but are {ids.dtype}.")
    for tensor in (values, rows):
        if tensor.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise ValueError(f"The kernels sum in float32, so they do not take {tensor.dtype}. Use ops.")
    if rows.dim() != 2 or values.dim() != 2 or (ids.dim() == 2 and len(values) != len(ids)):
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (values, ids, rows))
        raise ValueError(f"Expected [T, …], [T, K] and [N, W], but the shapes are {shapes}.")
