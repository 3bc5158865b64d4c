"""Top-k over selected blocks of a table: each token scores only the rows of its own blocks.

On a CPU, the tokens of a block are scored together in one matrix product, so the block's weights are read once. On a
GPU, the rows of the blocks are gathered instead, because counting the tokens of a block would synchronise with the GPU.

Shapes: T tokens, I input width, N table rows, S rows per block, C selected blocks, P = T * C pairs, K selected rows.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

MAX_GATHERED = 1 << 24
"""Largest number of weights that are gathered at once: 64 MB in float32."""


@torch.no_grad()
def topk_per_block(
    x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, blocks_TC: Tensor, size: int, k: int
) -> tuple[Tensor, Tensor]:
    """Values and row ids of the K largest scores in each selected block: two tensors [T, C, min(K, S)].

    A smaller last block is padded with -inf and its first row id.
    """
    per_block = min(k, size)
    implementation = _by_block if x_TI.device.type == "cpu" else _by_gather
    return implementation(x_TI, weight_NI, bias_N, blocks_TC, size, per_block)


def _by_block(
    x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, blocks_TC: Tensor, size: int, per_block: int
) -> tuple[Tensor, Tensor]:
    selected = blocks_TC.shape[1]
    blocks_P = blocks_TC.reshape(-1)
    order_P = blocks_P.argsort(stable=True)
    used, counts = torch.unique_consecutive(blocks_P[order_P], return_counts=True)
    values_PK = x_TI.new_full((len(blocks_P), per_block), -torch.inf)
    ids_PK = (blocks_P * size).unsqueeze(1).repeat(1, per_block)
    for block, pairs in zip(used.tolist(), order_P.split(counts.tolist()), strict=True):
        rows = slice(block * size, (block + 1) * size)
        scores = F.linear(x_TI[pairs // selected], weight_NI[rows], bias_N[rows])
        best, columns = scores.topk(min(per_block, scores.shape[1]), dim=1)
        values_PK[pairs, : best.shape[1]] = best
        ids_PK[pairs, : best.shape[1]] = columns + block * size
    return values_PK.view(len(x_TI), selected, per_block), ids_PK.view(len(x_TI), selected, per_block)


def _by_gather(
    x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, blocks_TC: Tensor, size: int, per_block: int
) -> tuple[Tensor, Tensor]:
    offsets_S = torch.arange(size, device=x_TI.device)
    tokens = max(1, MAX_GATHERED // (blocks_TC.shape[1] * size * x_TI.shape[1]))
    values, ids = [], []
    for x_RI, blocks_RC in zip(x_TI.split(tokens), blocks_TC.split(tokens), strict=True):
        ids_RCS = blocks_RC.unsqueeze(2) * size + offsets_S
        exists_RCS = ids_RCS < len(weight_NI)
        ids_RCS = torch.where(exists_RCS, ids_RCS, blocks_RC.unsqueeze(2) * size)
        scores_RP = torch.bmm(weight_NI[ids_RCS.flatten(1)], x_RI.unsqueeze(2)).squeeze(2)
        scores_RCS = (scores_RP.view(ids_RCS.shape) + bias_N[ids_RCS]).masked_fill(~exists_RCS, -torch.inf)
        best, columns = scores_RCS.topk(per_block, dim=2)
        values.append(best)
        ids.append(ids_RCS.gather(2, columns))
    return torch.cat(values), torch.cat(ids)


def merge_blocks(values_TCK: Tensor, ids_TCK: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The K largest over all blocks: two tensors [T, K], largest first, padded with -inf and id 0."""
    values_TP, ids_TP = values_TCK.flatten(1), ids_TCK.flatten(1)
    missing = max(0, k - values_TP.shape[1])
    values_TP = F.pad(values_TP, (0, missing), value=-torch.inf)
    ids_TP = F.pad(ids_TP, (0, missing))
    values_TK, columns_TK = values_TP.topk(k, dim=1)
    return values_TK, ids_TP.gather(1, columns_TK)
