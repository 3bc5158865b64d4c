"""The sparse operations in plain PyTorch, for any device.

Temporary memory is bounded: scores are computed block by block and reduced to the K largest, and rows are gathered a
few thousand at a time. A block that fits into the CPU cache is also faster than one pass over a [T, N] matrix.

Shapes: T tokens, I input width, W row width, N experts, K active experts, P = T * K pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

SCORES_AT_A_TIME = 1 << 22
"""Number of scores in a block: 16 MB in float32."""
MIN_TOKENS_AT_A_TIME = 64
"""Smallest number of tokens in a block of scores. Each block reads the weights of all experts."""
PAIRS_AT_A_TIME = 1 << 11
"""Number of table rows that are gathered at once: 6 MB for 768 float32 values each."""


def largest_scores(x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and expert ids of the K largest of x G^T + b for each token: two tensors [T, K], largest first.

    Under autocast the scores have its dtype, so no product has an ``out`` argument: autocast ignores those.
    """
    tokens = max(MIN_TOKENS_AT_A_TIME, SCORES_AT_A_TIME // len(weight_NI))
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


def sum_by_expert(rows_TW: Tensor, weights_TK: Tensor, indices_TK: Tensor, num_experts: int) -> Tensor:
    """Weighted sum of the rows of each expert's tokens, [N, W].

    The pairs are sorted by expert, and each bag of ``embedding_bag`` is one expert: no atomics, deterministic.
    """
    pairs_P = indices_TK.reshape(-1)
    order_P = torch.argsort(pairs_P, stable=True)
    # bincount would synchronise with the GPU to determine its size.
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
