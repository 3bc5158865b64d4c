"""Rows put into groups of equal sizes, so that those in one group are alike.

Rows are split again and again into two halves by their distance from the means of these (two means of equal sizes,
begun along the direction in which the rows differ most), which gives groups of exactly equal sizes: one matrix product
scores a group, and none is too large.

Shapes: N rows of width I, G groups of S, R rows of M places each that are split together.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

LOOKED_AT = 16_384
"""Rows, at most, in which a direction is looked for, and that are gathered at a time."""
ROUNDS = 6
"""Of power iteration, and then of two means: a direction that is nearly the best splits nearly as well."""


@torch.no_grad()
def in_groups(rows_NI: Tensor, size: int) -> Tensor:
    """Ids of the rows, [N], those of a group one after the other: groups of ``size``, the last may be smaller."""
    ids_1N = torch.arange(len(rows_NI), device=rows_NI.device).unsqueeze(0)
    return _split(rows_NI, ids_1N, size)[0]


@torch.no_grad()
def in_columns(rows_NI: Tensor, grid_GS: Tensor) -> Tensor:
    """The ids of a grid, [G, S], each row in another order, so that in a column are those that differ in the same way
    from the means of their rows."""
    left_NI = torch.zeros_like(rows_NI)
    for ids_S in grid_GS:
        left_NI[ids_S] = rows_NI[ids_S] - rows_NI[ids_S].mean(dim=0)
    return _split(left_NI, grid_GS, 1)


def _split(rows_NI: Tensor, ids_RM: Tensor, size: int) -> Tensor:
    """The same ids, in each row those with small projections before those with large ones, down to ``size`` places."""
    places = ids_RM.shape[1]
    if places <= size:
        return ids_RM
    direction_I = _direction(rows_NI, ids_RM)
    projections = [rows_NI[ids_P] @ direction_I for ids_P in ids_RM.reshape(-1).split(LOOKED_AT)]
    order_RM = torch.cat(projections).view(ids_RM.shape).argsort(dim=1, stable=True)
    ids_RM = ids_RM.gather(1, order_RM)
    middle = size * -(-places // (2 * size))  # whole groups on the left
    return torch.cat([_split(rows_NI, half, size) for half in (ids_RM[:, :middle], ids_RM[:, middle:])], dim=1)


def _direction(rows_NI: Tensor, ids_RM: Tensor) -> Tensor:
    """That tells two alike halves of some rows apart, [I]."""
    flat_P = ids_RM.reshape(-1)
    sample_PI = rows_NI[flat_P[:: -(-len(flat_P) // LOOKED_AT)]]
    sample_PI = sample_PI - sample_PI.mean(dim=0)
    direction_I = torch.randn(rows_NI.shape[1], generator=torch.Generator().manual_seed(0)).to(rows_NI)
    for _ in range(ROUNDS):
        direction_I = F.normalize(sample_PI.T @ (sample_PI @ direction_I), dim=0)
    for _ in range(ROUNDS):
        order_P = (sample_PI @ direction_I).argsort(stable=True)
        left_I, right_I = (sample_PI[half].mean(dim=0) for half in order_P.chunk(2))
        direction_I = right_I - left_I
    return direction_I
