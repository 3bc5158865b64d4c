"""Exact running statistics of every expert, in memory that does not grow with the text.

**Pairs** of token and expert are sorted by expert, then sequence, then position. In this order, the pairs of an expert
are contiguous, and so are its pairs within a sequence. Each such group of neighbours is reduced in one numpy call.

**Histograms.** An expert's histogram covers [0, 2^e). e is the smallest exponent whose range holds the expert's largest
activation. When a larger activation arrives, the range doubles and neighbouring bins are summed. The counts are
therefore those of a single pass with the final range, and the counts of two parts of a text can be added.

The largest activations of each expert are kept too, because one unit of steering is their 99th percentile.

**Token counts** are exact counts of the vocabulary tokens on which each expert is active. This is an external merge
sort. A run is a sorted array of 64-bit words: the (expert, token) key in the high bits, the count in the low bits.
Sorting, merging and summing are therefore sorts of plain integers. Full buffers are written to an unnamed temporary
file, which the operating system deletes with the process. Chunks of experts are then merged.

Shapes: S sequences of a batch, L tokens of a sequence, T = S * L tokens, K active, P active (token, expert) pairs, N
experts, B histogram bins, R experts active in the batch.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mxd.trainer.layers.mxd import Routing

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
    activation: NDArray[np.float32]
    rank: NDArray[np.uint16]
    """Rank of the expert among those active on its token, 0 for the largest activation."""

    def select(self, chosen: NDArray[Any]) -> Self:
        return type(self)(*(field[chosen] for field in self))

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        return cls._make(np.concatenate(values) for values in zip(*parts, strict=True))

    @classmethod
    def empty(cls) -> Self:
        ids, ranks = np.zeros(0, np.int32), np.zeros(0, np.uint16)
        return cls(ids, ids, ranks, np.zeros(0, np.float32), ranks)


def active_pairs(routing: Routing, length: int, sequence_ids_S: Ints) -> tuple[ActivePairs, Ints]:
    """Return the active pairs of a batch in order, and the batch index of each pair's token, [P].

    Args:
        routing: routing of T tokens, sequence by sequence.
        length: L, tokens per sequence.
        sequence_ids_S: index of each sequence in the text, ascending.
    """
    activations_TK = routing.activations_TK.float().cpu().numpy()
    indices_TK = routing.indices_TK.cpu().numpy()
    token_P, column_P = np.nonzero(activations_TK > 0)
    expert_P = indices_TK[token_P, column_P]
    order_P = stable_argsort(expert_P)
    token_P, column_P, expert_P = token_P[order_P], column_P[order_P], expert_P[order_P]
    activation_P = activations_TK[token_P, column_P]
    rank_P = column_P
    if not (activations_TK[:, 1:] <= activations_TK[:, :-1]).all():  # of a threshold gate, which does not sort
        by_rank_P = np.lexsort((-activation_P, token_P))
        rank_P[by_rank_P] = positions_in_groups(token_P[by_rank_P])
    row_P, position_P = np.divmod(token_P.astype(np.int32), np.int32(length))
    pairs = ActivePairs(
        expert=expert_P.astype(np.int32),
        sequence=sequence_ids_S.astype(np.int32)[row_P],
        position=position_P.astype(np.uint16),
        activation=activation_P,
        rank=np.minimum(rank_P, LAST_RANK).astype(np.uint16),
    )
    return pairs, token_P


def group_starts(*columns: NDArray[Any]) -> Ints:
    """First index of each group of neighbours that are equal in every column."""
    first = np.zeros(len(columns[0]), bool)
    first[:1] = True
    for column in columns:
        first[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(first)


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
    return np.arange(len(values)) - np.repeat(starts, np.diff(starts, append=len(values)))


HISTOGRAM_BINS = 64
ACTIVATION_BINS = 8
"""Equal parts of [0, 2^e) from which random examples are drawn. Each spans a whole number of histogram bins."""
INACTIVE_EXPONENT = -1000
"""Exponent of an expert that has not been active. It is below that of any float32."""
TAIL_SHARE = 0.04
"""Share of an expert's active tokens whose activations are kept, largest first."""
MIN_TAIL, ALL_TAILS = 256, 1 << 25
"""Activations kept at least per expert, and at most for all experts together."""
PENDING = 1 << 20
"""Activations that are collected before they are sorted."""


class ExpertStatistics:
    """Active tokens, activation sums, maxima and histograms of every expert."""

    def __init__(self, num_experts: int) -> None:
        self.active_tokens: Ints = np.zeros(num_experts, np.int64)
        self.sums: Floats = np.zeros(num_experts)
        self.largest: NDArray[np.float32] = np.zeros(num_experts, np.float32)
        self.histogram_NB: Ints = np.zeros((num_experts, HISTOGRAM_BINS), np.int64)
        self.exponents: NDArray[np.int32] = np.full(num_experts, INACTIVE_EXPONENT, np.int32)
        self.tails = Tails(num_experts)

    def add(self, pairs: ActivePairs) -> dict[int, Ints]:
        """Count a batch.

        Returns:
            The previously active experts whose range grew, by the number of doublings.
        """
        if not len(pairs.expert):
            return {}
        starts_R = group_starts(pairs.expert)
        experts_R = pairs.expert[starts_R]
        widened = self._widen(experts_R, np.maximum.reduceat(pairs.activation, starts_R))
        self.active_tokens[experts_R] += np.diff(starts_R, append=len(pairs.expert))
        self.sums[experts_R] += np.add.reduceat(pairs.activation, starts_R, dtype=np.float64)
        bin_P = pairs.expert.astype(np.int64) * HISTOGRAM_BINS + self.histogram_bins(pairs)
        np.add.at(self.histogram_NB.reshape(-1), bin_P, 1)
        self.tails.add(pairs.expert, pairs.activation, self.active_tokens)
        return widened

    def merge(self, other: Self) -> None:
        active = np.flatnonzero(other.active_tokens)
        self._widen(active, other.largest[active])
        lag_N = np.maximum(self.exponents - other.exponents, 0)
        for steps in np.unique(lag_N[active]).tolist():
            experts = active[lag_N[active] == steps]
            self.histogram_NB[experts] += _coarsen(other.histogram_NB[experts], steps)
        self.active_tokens += other.active_tokens
        self.sums += other.sums
        self.tails.merge(other.tails)

    def histogram_bins(self, pairs: ActivePairs) -> NDArray[np.int32]:
        """Histogram bin of each pair, [P], under the current ranges."""
        # Scaling by a power of two is exact, so no activation crosses a bin edge by rounding.
        scale_N = np.ldexp(float(HISTOGRAM_BINS), -self.exponents)
        return (pairs.activation * scale_N[pairs.expert]).astype(np.int32)

    @property
    def highs(self) -> Floats:
        """Upper end of each expert's histogram range, [N]. 0 for dead experts."""
        return np.where(self.active_tokens > 0, np.ldexp(1.0, self.exponents), 0.0)

    @property
    def means(self) -> Floats:
        """Mean activation over the expert's active tokens, [N]. 0 for dead experts.

        The float32 rounding makes the result independent of the order of summation.
        """
        return (self.sums / np.maximum(self.active_tokens, 1)).astype(np.float32).astype(np.float64)

    def percentiles(self, share: float) -> Floats:
        """Upper percentile of each expert's activation over its active tokens, [N]: the smallest activation that at
        least ``share`` of them do not exceed.

        It is exact up to ``100 * max(MIN_TAIL, ALL_TAILS / N)`` active tokens per expert, which is 800,000 for 4,096
        experts, unless a text becomes much weaker towards its end. Beyond that, it is the upper edge of the histogram
        bin that contains it, clipped to the largest activation.
        """
        cumulative = self.histogram_NB.cumsum(axis=1)
        reached = (cumulative >= share * self.active_tokens[:, None]).argmax(axis=1)
        edges: Floats = np.minimum((reached + 1) * self.highs / HISTOGRAM_BINS, self.largest.astype(np.float64))
        exact = self.tails.percentiles(share, self.active_tokens)
        return np.where(np.isnan(exact), edges, exact)

    def _widen(self, experts_R: NDArray[np.integer], largest_R: NDArray[np.float32]) -> dict[int, Ints]:
        larger = largest_R > self.largest[experts_R]
        experts, largest = experts_R[larger], largest_R[larger]
        before, after = self.exponents[experts], np.frexp(largest)[1]
        self.largest[experts], self.exponents[experts] = largest, after
        growth = np.where(before == INACTIVE_EXPONENT, 0, after - before)
        widened = {int(step): experts[growth == step].astype(np.int64) for step in np.unique(growth[growth > 0])}
        for doublings, widened_E in widened.items():
            self.histogram_NB[widened_E] = _coarsen(self.histogram_NB[widened_E], doublings)
        return widened


class Tails:
    """The largest activations of every expert, and the largest of those that were dropped."""

    def __init__(self, num_experts: int) -> None:
        self.expert: NDArray[np.int32] = np.zeros(0, np.int32)
        self.value: NDArray[np.float32] = np.zeros(0, np.float32)
        self.dropped: NDArray[np.float32] = np.zeros(num_experts, np.float32)
        self._capacity = max(MIN_TAIL, ALL_TAILS // num_experts)
        self._pending: list[tuple[NDArray[np.int32], NDArray[np.float32]]] = []
        self._num_pending = 0

    def add(self, expert_P: NDArray[np.int32], value_P: NDArray[np.float32], active_N: Ints) -> None:
        """Add the activations of some pairs; ``active_N`` counts the active tokens with them."""
        kept = value_P > self.dropped[expert_P]
        self._pending.append((expert_P[kept], value_P[kept]))
        self._num_pending += int(kept.sum())
        if self._num_pending > max(PENDING, len(self.value)):
            self._sort(active_N)

    def merge(self, other: Self) -> None:
        self._pending += [*other._pending, (other.expert, other.value)]
        self.dropped = np.maximum(self.dropped, other.dropped)

    def percentiles(self, share: float, active_N: Ints) -> Floats:
        """Percentile of each expert, [N]; NaN where activations that it may depend on were dropped, and 0 if dead."""
        self._sort(active_N)
        found_N = np.zeros(len(active_N))
        experts = np.flatnonzero(active_N)
        place_R = active_N[experts] - np.ceil(share * active_N[experts] - 1e-9).astype(np.int64)
        start_R, end_R = (np.searchsorted(self.expert, experts, side=side) for side in ("left", "right"))
        is_kept_R = place_R < end_R - start_R
        found_N[experts[~is_kept_R]] = np.nan
        found_N[experts[is_kept_R]] = self.value[(start_R + place_R)[is_kept_R]]
        found_N[found_N < self.dropped] = np.nan
        return found_N

    def _sort(self, active_N: Ints) -> None:
        """Sort by expert, largest activation first, and drop the small ones."""
        parts = [(self.expert, self.value), *self._pending]
        expert_P, value_P = (np.concatenate(values) for values in zip(*parts, strict=True))
        order_P = np.lexsort((-value_P, expert_P))
        expert_P, value_P = expert_P[order_P], value_P[order_P]
        rank_P = np.arange(len(expert_P)) - np.searchsorted(expert_P, expert_P)
        room_N = np.minimum(self._capacity, np.maximum(MIN_TAIL, TAIL_SHARE * active_N)).astype(np.int64)
        kept_P = rank_P < room_N[expert_P]
        np.maximum.at(self.dropped, expert_P[~kept_P], value_P[~kept_P])
        self.expert, self.value = expert_P[kept_P], value_P[kept_P]
        self._pending, self._num_pending = [], 0


def _coarsen(histogram_NB: Ints, doublings: int) -> Ints:
    targets = np.arange(HISTOGRAM_BINS) >> min(doublings, 6)
    coarse = np.zeros_like(histogram_NB)
    np.add.at(coarse.T, targets, histogram_NB.T)
    return coarse


Words = NDArray[np.uint64]

COUNT_BITS = 24
MAX_COUNT = 1 << COUNT_BITS
"""Largest count per word. Larger counts are split over several words."""
MAX_RUNS = 32
"""Runs in the file before they are merged into one."""
WORDS_PER_CHUNK = 1 << 20


class TokenCounts:
    def __init__(self, num_experts: int, vocabulary: int, folder: Path, buffer_size: int = 1 << 21) -> None:
        """Buffer ``buffer_size`` pairs in memory and write the rest to an unnamed file in ``folder``."""
        self.num_experts = num_experts
        self.vocabulary = vocabulary
        # 32-bit keys sort in half the time.
        narrow = num_experts * vocabulary <= 1 << 32
        self._buffer = np.empty(buffer_size, np.uint32 if narrow else np.uint64)
        self._buffered = 0
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._runs: list[tuple[int, int]] = []
        """Offset and length (words) of each run in the file."""

    def add(self, pairs: ActivePairs, tokens_P: Ints) -> None:
        """Count a batch. ``tokens_P`` are the token ids of the pairs."""
        keys_P = pairs.expert.astype(np.int64) * self.vocabulary + tokens_P
        while len(keys_P):
            fits = min(len(keys_P), len(self._buffer) - self._buffered)
            self._buffer[self._buffered : self._buffered + fits] = keys_P[:fits]
            self._buffered += fits
            keys_P = keys_P[fits:]
            if self._buffered == len(self._buffer):
                self.add_run(self._drain_buffer())

    def add_run(self, words: Words) -> None:
        """Add a run of sorted words, such as one yielded by another object's ``chunks``."""
        if len(words):
            self._append(words)
        if len(self._runs) > MAX_RUNS:
            self._merge_runs()

    def chunks(self) -> Iterator[tuple[int, int, Words]]:
        """Yield all counts, summed, in chunks of bounded size: (first expert, end expert, sorted words)."""
        if self._buffered:
            self.add_run(self._drain_buffer())
        places = self._runs if self._file else []
        runs = [np.memmap(self._file, np.uint64, "r", start * 8, (length,)) for start, length in places]  # type: ignore[call-overload]
        bounds_N1 = np.arange(self.num_experts + 1, dtype=np.uint64) * np.uint64(self.vocabulary)
        bounds_RN1 = [np.searchsorted(run, bounds_N1 << np.uint64(COUNT_BITS)) for run in runs]
        rows_N1 = np.sum([np.zeros(self.num_experts + 1, np.int64), *bounds_RN1], axis=0)
        first = 0
        while first < self.num_experts:
            fits = int(np.searchsorted(rows_N1, rows_N1[first] + WORDS_PER_CHUNK, side="right")) - 1
            end = min(max(fits, first + 1), self.num_experts)
            parts = [run[bounds[first] : bounds[end]] for run, bounds in zip(runs, bounds_RN1, strict=True)]
            words = np.concatenate([np.zeros(0, np.uint64), *parts])
            words.sort()
            yield first, end, _encode_words(*_sum_words(words))
            first = end

    def summaries(self, top: int) -> Iterator[tuple[list[list[int]], float]]:
        """Yield for every expert, in order, its ``top`` most frequent tokens as [id, count], and the entropy of its
        active-token distribution in bits."""
        for first, end, words in self.chunks():
            keys, counts = _sum_words(words)
            experts, tokens = np.divmod(keys, np.uint64(self.vocabulary))
            experts = experts.astype(np.int64) - first
            totals = np.bincount(experts, counts, end - first)
            shares = counts / totals[experts]
            entropy = np.bincount(experts, -shares * np.log2(shares), end - first)
            order = np.lexsort((-counts, experts))
            bounds = np.searchsorted(experts[order], np.arange(end - first + 1))
            chosen = [order[low : min(low + top, high)] for low, high in pairwise(bounds.tolist())]
            tops = [np.stack([tokens[rows].astype(np.int64), counts[rows]], axis=1).tolist() for rows in chosen]
            yield from zip(tops, np.maximum(entropy, 0.0).tolist(), strict=True)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _drain_buffer(self) -> Words:
        keys, counts = np.unique(self._buffer[: self._buffered], return_counts=True)
        self._buffered = 0
        return _encode_words(keys.astype(np.uint64), counts)

    def _append(self, words: Words) -> None:
        # An unnamed file leaves nothing behind, however the process ends.
        self._file = self._file or tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  # see close
        start = self._file.seek(0, os.SEEK_END) // words.itemsize
        words.tofile(self._file)
        self._file.flush()
        self._runs.append((start, len(words)))

    def _merge_runs(self) -> None:
        merged = TokenCounts(self.num_experts, self.vocabulary, self._folder, buffer_size=1)
        total = 0
        for _, _, words in self.chunks():
            merged._append(words)
            total += len(words)
        self.close()
        # The chunks are contiguous and in order, so they form one run.
        self._file, self._runs = merged._file, [(0, total)]


def _sum_words(words: Words) -> tuple[Words, Ints]:
    """Decode sorted words to unique keys and their total counts."""
    keys = words >> np.uint64(COUNT_BITS)
    starts = group_starts(keys)
    counts = (words & np.uint64(MAX_COUNT - 1)).astype(np.int64) + 1
    return keys[starts], np.add.reduceat(counts, starts) if len(starts) else counts


def _encode_words(keys: Words, counts: Ints) -> Words:
    """Encode ascending keys and their counts as sorted words."""
    if counts.max(initial=0) > MAX_COUNT:
        pieces = -(-counts // MAX_COUNT)
        last = np.cumsum(pieces) - 1
        sizes = np.full(int(pieces.sum()), MAX_COUNT)
        sizes[last] = counts - (pieces - 1) * MAX_COUNT
        return np.sort(_encode_words(np.repeat(keys, pieces), sizes))
    return (keys << np.uint64(COUNT_BITS)) | (counts - 1).astype(np.uint64)
