"""Active (token, expert) pairs, sorted by expert, then sequence, then position.

In this order, the pairs of an expert are contiguous, and so are its pairs within a sequence. Each such group of
neighbours is reduced in one numpy call. The sort key is one integer per pair: the expert in the high bits, the slot in
the batch in the low bits. Numpy sorts plain integers many times faster than rows with several columns.

Shapes: S sequences of a batch, L tokens of a sequence, T = S * L tokens, K active, P active pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mxd.trainer.layers.base import Routing

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_INDEX_BITS = np.uint64(32)
_INDEX_MASK = np.uint64(2**32 - 1)


LAST_RANK = np.iinfo(np.uint16).max
"""Largest stored rank. Lower-ranked experts get it too."""


class ActivePairs(NamedTuple):
    """Columns of P active pairs, 16 bytes per pair."""

    expert: NDArray[np.int32]
    sequence: NDArray[np.int32]
    position: NDArray[np.uint16]
    coefficient: NDArray[np.float32]
    rank: NDArray[np.uint16]
    """Rank of the expert among those active on its token, 0 for the largest coefficient."""

    def select(self, chosen: NDArray[Any]) -> ActivePairs:
        """Return the pairs chosen by an index array or a mask."""
        fields: tuple[Any, ...] = tuple(field[chosen] for field in self)
        return ActivePairs(*fields)

    @classmethod
    def concatenate(cls, parts: Sequence[ActivePairs]) -> ActivePairs:
        """Concatenate several sets of pairs."""
        fields: tuple[Any, ...] = tuple(np.concatenate(values) for values in zip(*parts, strict=True))
        return cls(*fields)

    @classmethod
    def empty(cls) -> ActivePairs:
        """Return a set without pairs."""
        ids, ranks = np.zeros(0, np.int32), np.zeros(0, np.uint16)
        return cls(ids, ids, ranks, np.zeros(0, np.float32), ranks)


def active_pairs(routing: Routing, length: int, sequence_ids_S: Ints) -> tuple[ActivePairs, Ints]:
    """Return the active pairs of a batch in order, and the batch index of each pair's token, [P].

    Args:
        routing: routing of T tokens, sequence by sequence.
        length: L, tokens per sequence.
        sequence_ids_S: index of each sequence in the text, ascending.
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
    # Top-k gates sort by coefficient. Threshold gates do not.
    is_sorted = bool((coefficients_TK[:, 1:] <= coefficients_TK[:, :-1]).all())
    rank_P = column_P if is_sorted else ranks_in_token(token_P, coefficient_P)
    row_P, position_P = np.divmod(token_P.astype(np.int32), np.int32(length))
    pairs = ActivePairs(
        expert=(keys_P >> slot_bits).astype(np.int32),
        sequence=sequence_ids_S.astype(np.int32)[row_P],
        position=position_P.astype(np.uint16),
        coefficient=coefficient_P,
        rank=np.minimum(rank_P, LAST_RANK).astype(np.uint16),
    )
    return pairs, token_P


def ranks_in_token(token_P: Ints, coefficient_P: NDArray[np.float32]) -> Ints:
    """Rank of each pair among those of its token, [P], 0 for the largest coefficient."""
    order_P = np.lexsort((-coefficient_P, token_P))
    starts = group_starts(token_P[order_P])
    rank_P = np.empty(len(order_P), np.int64)
    rank_P[order_P] = np.arange(len(order_P)) - np.repeat(starts, group_lengths(starts, len(order_P)))
    return rank_P


def group_starts(*columns: NDArray[Any]) -> Ints:
    """First index of each group of neighbours that are equal in every column."""
    first = np.zeros(len(columns[0]), bool)
    first[:1] = True
    for column in columns:
        first[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(first)


def group_lengths(starts: Ints, total: int) -> Ints:
    """Size of each group, given the groups' first indices and the total number of members."""
    return np.diff(starts, append=total)


def stable_argsort(values: NDArray[Any]) -> Ints:
    """Stable argsort of at most 2**32 integers between 0 and 2**32 - 1. Faster than ``np.argsort(kind="stable")``."""
    keys = (values.astype(np.uint64) << _INDEX_BITS) | np.arange(len(values), dtype=np.uint64)
    keys.sort()
    return (keys & _INDEX_MASK).astype(np.int64)


def concatenate_sorted(parts: Sequence[ActivePairs]) -> ActivePairs:
    """Concatenate sorted parts and sort the result. Each part's sequences must follow those of the part before it."""
    pairs = ActivePairs.concatenate(parts)
    return pairs.select(stable_argsort(pairs.expert))


def positions_in_groups(values: NDArray[Any]) -> Ints:
    """Index 0, 1, 2, … of each value within its group of equal neighbours."""
    starts = group_starts(values)
    return np.arange(len(values)) - np.repeat(starts, group_lengths(starts, len(values)))
