"""Every (token, expert) pair that is active, in the one order that all of the index is counted in.

Sorted by expert, then sequence, then position, the pairs of an expert, and those of an expert in a sequence, are runs
of neighbours, and a statistic is a sum over runs. The order comes from sorting one integer a pair, in which the expert
stands above the pair's place in the batch: numpy sorts plain integers many times faster than it orders rows by columns.

Shapes: S sequences of a batch, L tokens of a sequence, T = S * L tokens, K active, P active pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer.layers.sparse import Routing

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_PLACE_BITS = np.uint64(32)
_PLACE_MASK = np.uint64(2**32 - 1)


LAST_RANK = np.iinfo(np.uint16).max
"""Stands for itself and all below."""


class Pairs(NamedTuple):
    """Active pairs, each field [P]: 16 bytes a pair."""

    expert: NDArray[np.int32]
    sequence: NDArray[np.int32]
    position: NDArray[np.uint16]
    coefficient: NDArray[np.float32]
    rank: NDArray[np.uint16]
    """The expert's place among those of its token, 0 the one with the largest coefficient."""

    def take(self, chosen: NDArray[Any]) -> Pairs:
        """The chosen ones, by place or by mask."""
        fields: tuple[Any, ...] = tuple(field[chosen] for field in self)
        return Pairs(*fields)

    @classmethod
    def joined(cls, parts: Sequence[Pairs]) -> Pairs:
        """All of them, one part after the other."""
        fields: tuple[Any, ...] = tuple(np.concatenate(values) for values in zip(*parts, strict=True))
        return cls(*fields)

    @classmethod
    def none(cls) -> Pairs:
        """No pairs."""
        words, halves = np.zeros(0, np.int32), np.zeros(0, np.uint16)
        return cls(words, words, halves, np.zeros(0, np.float32), halves)


def active_pairs(routing: Routing, length: int, numbers_S: Ints) -> tuple[Pairs, Ints]:
    """The active pairs of a batch in order, and of each the token's place in the batch, [P].

    Args:
        routing: of T tokens, sequence by sequence.
        length: L.
        numbers_S: each sequence's place in the text, ascending.
    """
    coefficients_TK = routing.coefficients_TK.float().cpu().numpy()
    indices_TK = routing.indices_TK.cpu().numpy()
    tokens, k = coefficients_TK.shape
    column_bits = (k - 1).bit_length()
    slot_bits = ((tokens << column_bits) - 1).bit_length()
    slots_TK = (np.arange(tokens)[:, None] << column_bits) + np.arange(k)
    keys_P = ((indices_TK << slot_bits) | slots_TK)[coefficients_TK > 0]
    keys_P.sort()
    slot_P = keys_P & ((1 << slot_bits) - 1)
    token_P = slot_P >> column_bits
    column_P = slot_P & ((1 << column_bits) - 1)
    coefficient_P = coefficients_TK[token_P, column_P]
    # A top-k has the largest first; gates that let any number through do not.
    falls = bool((coefficients_TK[:, 1:] <= coefficients_TK[:, :-1]).all())
    rank_P = column_P if falls else ranks_of(token_P, coefficient_P)
    row_P, position_P = np.divmod(token_P.astype(np.int32), np.int32(length))
    pairs = Pairs(
        expert=(keys_P >> slot_bits).astype(np.int32),
        sequence=numbers_S.astype(np.int32)[row_P],
        position=position_P.astype(np.uint16),
        coefficient=coefficient_P,
        rank=np.minimum(rank_P, LAST_RANK).astype(np.uint16),
    )
    return pairs, token_P


def ranks_of(token_P: Ints, coefficient_P: NDArray[np.float32]) -> Ints:
    """Each pair's place among those of its token, 0 the one with the largest coefficient."""
    order_P = np.lexsort((-coefficient_P, token_P))
    starts = run_starts(token_P[order_P])
    rank_P = np.empty(len(order_P), np.int64)
    rank_P[order_P] = np.arange(len(order_P)) - np.repeat(starts, run_lengths(starts, len(order_P)))
    return rank_P


def run_starts(*columns: NDArray[Any]) -> Ints:
    """Where runs of neighbours that are equal in every column begin."""
    first = np.zeros(len(columns[0]), bool)
    first[:1] = True
    for column in columns:
        first[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(first)


def run_lengths(starts: Ints, total: int) -> Ints:
    """How many members each run has, of ``total`` in all."""
    return np.diff(starts, append=total)


def order_by(values: NDArray[Any]) -> Ints:
    """The stable order of up to 2**32 whole numbers from 0 to 2**32 - 1: one sort of integers, no sort of rows."""
    keys = (values.astype(np.uint64) << _PLACE_BITS) | np.arange(len(values), dtype=np.uint64)
    keys.sort()
    return (keys & _PLACE_MASK).astype(np.int64)


def sorted_pairs(parts: Sequence[Pairs]) -> Pairs:
    """Parts that are sorted, each with later sequences than those before it, as one."""
    pairs = Pairs.joined(parts)
    return pairs.take(order_by(pairs.expert))


def places_in_runs(values: NDArray[Any]) -> Ints:
    """0, 1, 2, … within each run of equal values."""
    starts = run_starts(values)
    return np.arange(len(values)) - np.repeat(starts, run_lengths(starts, len(values)))
