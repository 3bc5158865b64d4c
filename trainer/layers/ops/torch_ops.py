"""The sparse operations in plain PyTorch, for any device.

Temporary memory is bounded: scores are computed block by block and reduced to the K largest, and rows are gathered a
few thousand at a time. A block that fits into the CPU cache is also faster than one pass over a [T, N] matrix.

Shapes: T tokens, I input width, W row width, N experts, K active experts, P = T * K pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

SCORES_AT_A_TIME = 1 << 22
"""Number of scores in a block: 16 MB in float32."""
MIN_TOKENS_AT_A_TIME = 64
"""Smallest number of tokens in a block of scores. Each block reads the weights of all experts."""
PAIRS_AT_A_TIME = 1 << 11
"""Number of table rows that are gathered at once: 6 MB for 768 float32 values each."""


def tokens_at_a_time(num_experts: int) -> int:
    """Number of tokens whose scores are in memory at once."""
    return max(MIN_TOKENS_AT_A_TIME, SCORES_AT_A_TIME // num_experts)


def largest_scores(x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and expert ids of the K largest of x G^T + b for each token: two tensors [T, K], largest first.

    Under autocast the scores have its dtype, so no product has an ``out`` argument: autocast ignores those.
    """
    tokens = tokens_at_a_time(len(weight_NI))
    blocks = [torch.addmm(bias_N, x_BI, weight_NI.T).topk(k, dim=1) for x_BI in x_TI.split(tokens)]
    values, ids = zip(*blocks, strict=True)
    return torch.cat(values), torch.cat(ids)


def mix_rows(weights_TK: Tensor, indices_TK: Tensor, table_NW: Tensor) -> Tensor:
    """Weighted sum of the rows of each token's experts, [T, W]."""
    return F.embedding_bag(indices_TK, table_NW, mode="sum", per_sample_weights=weights_TK)


def row_dots(left_TW: Tensor, table_NW: Tensor, indices_TK: Tensor) -> Tensor:
    """Dot product of each token's row with the table row of each of its experts, [T, K]."""
    k = indices_TK.shape[1]
    tokens = max(1, PAIRS_AT_A_TIME // max(k, 1))
    width = table_NW.shape[1]
    buffer = table_NW.new_empty(min(tokens, len(left_TW)) * k, width)
    dots_TK = left_TW.new_empty(indices_TK.shape)
    for first in range(0, len(left_TW), tokens):
        rows_BW, ids_BK = left_TW[first : first + tokens], indices_TK[first : first + tokens]
        gathered = torch.index_select(table_NW, 0, ids_BK.reshape(-1), out=buffer[: ids_BK.numel()])
        products = torch.bmm(gathered.view(len(rows_BW), k, width), rows_BW.unsqueeze(2))
        dots_TK[first : first + tokens] = products.squeeze(2)
    return dots_TK


class PairsByExpert(NamedTuple):
    """The pairs (token, expert) of a batch, sorted by expert and then by token."""

    order_P: Tensor
    """Place t * K + k of each pair."""
    tokens_P: Tensor
    """Token of each pair."""
    offsets_N1: Tensor
    """First pair of each expert, and the number of pairs, [N + 1]."""


def pairs_by_expert(indices_TK: Tensor, num_experts: int) -> PairsByExpert:
    """Sort the pairs of a batch by expert. Keys are int32, which halves the passes of a radix sort."""
    sorted_P, order_P = indices_TK.reshape(-1).int().sort(stable=True)
    dtype = torch.int32 if len(order_P) < 1 << 31 else torch.int64
    # bincount would synchronise with the GPU to determine its size.
    bounds_N1 = torch.arange(num_experts + 1, device=sorted_P.device, dtype=torch.int32)
    offsets_N1 = torch.searchsorted(sorted_P, bounds_N1, out_int32=dtype == torch.int32)
    return PairsByExpert(order_P, (order_P // indices_TK.shape[1]).to(dtype), offsets_N1)


def sum_by_expert(rows_TW: Tensor, weights_TK: Tensor, pairs: PairsByExpert) -> tuple[Tensor, Tensor]:
    """Weighted sum of the rows of each expert's tokens, [N, W], and the sum of the weights alone, [N].

    Each bag of ``embedding_bag`` is one expert: no atomics, deterministic.
    """
    weights_P = weights_TK.reshape(-1)[pairs.order_P]
    sums_NW, totals_N1 = (
        F.embedding_bag(
            pairs.tokens_P, values, pairs.offsets_N1, mode="sum", per_sample_weights=weights_P, include_last_offset=True
        )
        for values in (rows_TW, rows_TW.new_ones(len(rows_TW), 1))
    )
    return sums_NW, totals_N1.squeeze(1)
