"""The sparse operations in stock PyTorch, for any device: what the kernels are made of where nothing faster is there.

Every temporary is bounded: scores are made a block at a time and cut down to the K largest at once, rows are gathered a
few thousand at a time. A block that fits the processor's cache is also faster than one pass over a [T, N] matrix.

Shapes: T tokens, I input width, W width of a row, N experts, K active, P = T * K pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

SCORES_AT_A_TIME = 1 << 22
"""Scores that are made before the largest are taken out: 16 MB in float32."""
TOKENS_AT_A_TIME = 1 << 10
"""Tokens of a block of scores; the rest of the block is experts, whose weights are then read once."""
PAIRS_AT_A_TIME = 1 << 11
"""Rows of a table that are gathered at a time: 6 MB of 768 float32."""


def largest_scores(x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and places of the K largest of x G^T + b on each token, two tensors [T, K], largest first."""
    if x_TI.shape[0] * weight_NI.shape[0] <= SCORES_AT_A_TIME:
        scores_TN = torch.addmm(bias_N, x_TI, weight_NI.T)
        return _largest(scores_TN, k)
    blocks = [_largest_of_block(block_BI, weight_NI, bias_N, k) for block_BI in x_TI.split(TOKENS_AT_A_TIME)]
    values, places = zip(*blocks, strict=True)
    return torch.cat(values), torch.cat(places)


def _largest_of_block(x_BI: Tensor, weight_NI: Tensor, bias_N: Tensor, k: int) -> tuple[Tensor, Tensor]:
    experts = max(k, SCORES_AT_A_TIME // x_BI.shape[0])
    buffer = x_BI.new_empty(x_BI.shape[0] * min(experts, len(weight_NI)))
    values, places = [], []
    for first in range(0, len(weight_NI), experts):
        weight_CI, bias_C = weight_NI[first : first + experts], bias_N[first : first + experts]
        scores_BC = torch.mm(x_BI, weight_CI.T, out=buffer[: len(x_BI) * len(weight_CI)].view(len(x_BI), -1))
        best, where = _largest(scores_BC.add_(bias_C), min(k, len(weight_CI)))
        values.append(best)
        places.append(where + first)
    best, where = _largest(torch.cat(values, dim=1), k)
    return best, torch.cat(places, dim=1).gather(1, where)


def _largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    values, places = scores.topk(k, dim=1)
    return values, places


def mix_rows(weights_TK: Tensor, indices_TK: Tensor, table_NW: Tensor) -> Tensor:
    """[T, W]: for each token, the rows of its experts, weighted."""
    return F.embedding_bag(indices_TK, table_NW, mode="sum", per_sample_weights=weights_TK)


def row_dots(left_TW: Tensor, table_NW: Tensor, indices_TK: Tensor) -> Tensor:
    """[T, K]: dot product of each token's row with the table's row of each of its experts."""
    k = indices_TK.shape[1]
    tokens = max(1, PAIRS_AT_A_TIME // max(k, 1))
    width = table_NW.shape[1]
    buffer = table_NW.new_empty(min(tokens, len(left_TW)) * k, width)
    dots_TK = left_TW.new_empty(indices_TK.shape)
    for first in range(0, len(left_TW), tokens):
        rows_BW, places_BK = left_TW[first : first + tokens], indices_TK[first : first + tokens]
        gathered = torch.index_select(table_NW, 0, places_BK.reshape(-1), out=buffer[: places_BK.numel()])
        products = torch.bmm(gathered.view(len(rows_BW), k, width), rows_BW.unsqueeze(2))
        dots_TK[first : first + tokens] = products.squeeze(2)
    return dots_TK


def sum_by_expert(rows_TW: Tensor, weights_TK: Tensor, indices_TK: Tensor, num_experts: int) -> Tensor:
    """[N, W]: for each expert, the rows of its tokens, weighted.

    The pairs are sorted by expert, and the bags of ``embedding_bag`` are experts: no atomics, the same bits each time.
    """
    pairs_P = indices_TK.reshape(-1)
    order_P = torch.argsort(pairs_P, stable=True)
    # Not bincount, which on a GPU without Triton waits for the device to learn its own size.
    counts_N = pairs_P.new_zeros(num_experts).scatter_add_(0, pairs_P, torch.ones_like(pairs_P))
    offsets_N1 = F.pad(counts_N.cumsum(0), (1, 0))
    return F.embedding_bag(
        order_P.div(indices_TK.shape[1], rounding_mode="floor"),
        rows_TW,
        offsets_N1,
        mode="sum",
        per_sample_weights=weights_TK.reshape(-1)[order_P],
        include_last_offset=True,
    )
