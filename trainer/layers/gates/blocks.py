"""Scores of the experts in some blocks of a table alone: each token has chosen its own.

On a CPU the tokens of a block are scored together, one matrix product a block, so that its weights are read once
however many tokens chose it. Elsewhere the rows of the blocks are gathered: nothing there may wait for the device to
learn how many tokens a block has.

Shapes: T tokens, I input width, N rows of the table, S rows of a block, C chosen blocks, P = T * C pairs, K wanted.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from trainer import few_rows

NUMBERS_AT_A_TIME = 1 << 24
"""Of weights that are gathered together: 64 MB in float32."""


@torch.no_grad()
def largest_of_blocks(
    x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, blocks_TC: Tensor, size: int, k: int
) -> tuple[Tensor, Tensor]:
    """Values and places of the K largest scores in each of a token's blocks, two tensors [T, C, K or S].

    Where the last block has fewer rows, what it lacks is -inf, at its first place.
    """
    kept = min(k, size)
    way = _by_block if x_TI.device.type == "cpu" else _gathered
    return way(x_TI, weight_NI, bias_N, blocks_TC, size, kept)


def _by_block(
    x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, blocks_TC: Tensor, size: int, kept: int
) -> tuple[Tensor, Tensor]:
    chosen = blocks_TC.shape[1]
    blocks_P = blocks_TC.reshape(-1)
    order_P = blocks_P.argsort(stable=True)
    used, counts = torch.unique_consecutive(blocks_P[order_P], return_counts=True)
    values_PK = x_TI.new_full((len(blocks_P), kept), -torch.inf)
    places_PK = (blocks_P * size).unsqueeze(1).repeat(1, kept)
    for block, pairs in zip(used.tolist(), order_P.split(counts.tolist()), strict=True):
        rows = slice(block * size, (block + 1) * size)
        scores = scores_of(x_TI[pairs // chosen], weight_NI[rows], bias_N[rows])
        best, where = scores.topk(min(kept, scores.shape[1]), dim=1)
        values_PK[pairs, : best.shape[1]] = best
        places_PK[pairs, : best.shape[1]] = where + block * size
    return values_PK.view(len(x_TI), chosen, kept), places_PK.view(len(x_TI), chosen, kept)


@torch.no_grad()
def scores_of(x_RI: Tensor, weight_SI: Tensor, bias_S: Tensor) -> Tensor:
    """x w + b, [R, S]; rows that are alike get the same bits."""
    if few_rows.turns(x_RI):
        return few_rows.linear(x_RI, weight_SI, bias_S)
    return F.linear(few_rows.whole_tiles(x_RI), weight_SI, bias_S)[: len(x_RI)]


def _gathered(
    x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, blocks_TC: Tensor, size: int, kept: int
) -> tuple[Tensor, Tensor]:
    inside_S = torch.arange(size, device=x_TI.device)
    each = max(1, NUMBERS_AT_A_TIME // (blocks_TC.shape[1] * size * x_TI.shape[1]))
    values, places = [], []
    for x_RI, blocks_RC in zip(x_TI.split(each), blocks_TC.split(each), strict=True):
        ids_RCS = blocks_RC.unsqueeze(2) * size + inside_S
        there_RCS = ids_RCS < len(weight_NI)
        ids_RCS = torch.where(there_RCS, ids_RCS, blocks_RC.unsqueeze(2) * size)
        scores_RP = torch.bmm(weight_NI[ids_RCS.flatten(1)], x_RI.unsqueeze(2)).squeeze(2)
        scores_RCS = (scores_RP.view(ids_RCS.shape) + bias_N[ids_RCS]).masked_fill(~there_RCS, -torch.inf)
        best, where = scores_RCS.topk(kept, dim=2)
        values.append(best)
        places.append(ids_RCS.gather(2, where))
    return torch.cat(values), torch.cat(places)


def largest_of_all(values_TCK: Tensor, places_TCK: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Of what the blocks offer the K largest, two tensors [T, K], largest first; what is lacking is -inf at place 0."""
    values_TP, places_TP = values_TCK.flatten(1), places_TCK.flatten(1)
    lacking = max(0, k - values_TP.shape[1])
    values_TP = F.pad(values_TP, (0, lacking), value=-torch.inf)
    places_TP = F.pad(places_TP, (0, lacking))
    values_TK, chosen_TK = values_TP.topk(k, dim=1)
    return values_TK, places_TP.gather(1, chosen_TK)
