"""Clustering of rows into groups of equal size, so that similar rows share a group.

Rows are split recursively into two halves of equal size by their projection onto the difference of two means (2-means
with equal sizes, initialised along the main direction of variation). All groups have the same size, so one matrix
product scores a group.

Shapes: N rows of width I, G groups of S, R rows of M places each that are split together.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

MAX_SAMPLE = 16_384
"""Largest number of rows that are gathered at once, and that determine a direction."""
ROUNDS = 6
"""Rounds of power iteration and of 2-means. A nearly optimal direction splits nearly as well."""


@torch.no_grad()
def cluster(rows_NI: Tensor, size: int) -> Tensor:
    """Row ids ordered by group, [N]: consecutive groups of ``size``; the last may be smaller."""
    ids_1N = torch.arange(len(rows_NI), device=rows_NI.device).unsqueeze(0)
    return _split(rows_NI, ids_1N, size)[0]


@torch.no_grad()
def align_columns(rows_NI: Tensor, grid_GS: Tensor) -> Tensor:
    """Reorder the ids [G, S] within each group, so that rows in one column have similar offsets from their group
    mean."""
    offsets_NI = torch.zeros_like(rows_NI)
    for ids_S in grid_GS:
        offsets_NI[ids_S] = rows_NI[ids_S] - rows_NI[ids_S].mean(dim=0)
    return _split(offsets_NI, grid_GS, 1)


def _split(rows_NI: Tensor, ids_RM: Tensor, size: int) -> Tensor:
    """Order the ids of each row by projection, recursively, down to groups of ``size``."""
    places = ids_RM.shape[1]
    if places <= size:
        return ids_RM
    direction_I = _direction(rows_NI, ids_RM)
    projections = [rows_NI[ids_P] @ direction_I for ids_P in ids_RM.reshape(-1).split(MAX_SAMPLE)]
    order_RM = torch.cat(projections).view(ids_RM.shape).argsort(dim=1, stable=True)
    ids_RM = ids_RM.gather(1, order_RM)
    middle = size * -(-places // (2 * size))  # the left half holds whole groups
    return torch.cat([_split(rows_NI, half, size) for half in (ids_RM[:, :middle], ids_RM[:, middle:])], dim=1)


def _direction(rows_NI: Tensor, ids_RM: Tensor) -> Tensor:
    """Direction that separates the rows into two halves, [I]."""
    flat_P = ids_RM.reshape(-1)
    sample_PI = rows_NI[flat_P[:: -(-len(flat_P) // MAX_SAMPLE)]]
    sample_PI = sample_PI - sample_PI.mean(dim=0)
    direction_I = torch.randn(rows_NI.shape[1], generator=torch.Generator().manual_seed(0)).to(rows_NI)
    for _ in range(ROUNDS):
        direction_I = F.normalize(sample_PI.T @ (sample_PI @ direction_I), dim=0)
    for _ in range(ROUNDS):
        order_P = (sample_PI @ direction_I).argsort(stable=True)
        left_I, right_I = (sample_PI[half].mean(dim=0) for half in order_P.chunk(2))
        direction_I = right_I - left_I
    return direction_I
