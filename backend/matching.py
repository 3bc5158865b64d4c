"""Which experts of two runs are most alike, a block at a time, so that memory does not grow with their number.

Shapes: E experts, D numbers that describe one, Q experts that look for their nearest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from backend.vectors import EXPERTS_PER_BLOCK, Candidates, Vectors

QUERIES_PER_BLOCK = 256
MOST_BY_CHANCE = 500
"""Of the experts that look, those that the level of chance is measured on."""
ROUNDING = 1e-5
"""Cosines that differ by less are equal."""


@dataclass(frozen=True)
class Nearest:
    """The candidate that is most like each of some experts."""

    places_Q: Tensor
    """Among the candidates."""
    cosines_Q: Tensor


@dataclass(frozen=True)
class Matches:
    """Experts of one run with the most similar ones of another."""

    nearest: Nearest
    mutual_Q: Tensor
    """Whether the nearest has none that is nearer to it."""
    chance_cosine: float
    """Median cosine with the nearest where that is as it is by chance."""


def nearest(vectors: Vectors, places_Q: Tensor, candidates: Candidates) -> Nearest:
    """For each of the experts at ``places_Q`` the most similar candidate, the first of equal ones."""
    best_Q, found_Q = torch.full((len(places_Q),), -torch.inf), torch.zeros(len(places_Q), dtype=torch.int64)
    for first in range(0, len(places_Q), QUERIES_PER_BLOCK):
        block = slice(first, first + QUERIES_PER_BLOCK)
        directions_QD = vectors.dense(places_Q[block])
        for start in range(0, len(candidates), EXPERTS_PER_BLOCK):
            cosines_QE = candidates.cosines(directions_QD, start, min(start + EXPERTS_PER_BLOCK, len(candidates)))
            most_Q, where_Q = cosines_QE.max(dim=1)
            found_Q[block] = torch.where(most_Q > best_Q[block], where_Q + start, found_Q[block])
            best_Q[block] = torch.maximum(most_Q, best_Q[block])
    return Nearest(found_Q, best_Q.clamp(-1, 1))


def match(one: Vectors, other: Vectors, places_Q: Tensor, seed: int = 0) -> Matches:
    """Match the experts of ``one`` at ``places_Q`` with all of ``other``.

    Args:
        one: all experts that one of the other run could be most like.
        other: all experts that are looked through.
        places_Q: who looks; at least one.
        seed: of the level of chance.
    """
    found = nearest(one, places_Q, other)
    chosen, which_Q = found.places_Q.unique(return_inverse=True)
    back = nearest(other, chosen, one)
    some = torch.randperm(len(places_Q), generator=torch.Generator().manual_seed(seed))[:MOST_BY_CHANCE]
    chance = nearest(one, places_Q[some], other.by_chance(seed))
    return Matches(
        found,
        back.cosines_Q[which_Q] <= found.cosines_Q + ROUNDING,
        float(chance.cosines_Q.quantile(0.5)),
    )
