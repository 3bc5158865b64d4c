"""Selection of each expert's examples, and a random sample of whole sequences with their complete routing.

**Examples** are the largest activations, and random ones from each activation bin. Candidates are (expert, sequence)
groups with all active pairs of the expert in that sequence. A batch adds groups that may still be selected: their
activation exceeds the smallest selected one, or their random priority is below the largest selected one. Pruning drops
the other groups and tightens the thresholds. Selection depends on an example's own values only, not on the order of the
text, so the parts of several processes can be merged. Memory does not grow with the text.

**Sample.** Top examples do not show where an expert is inactive, nor which other experts are active on the same token.
The sample does: labels are tested on it, and co-activations are counted in it. The choice depends only on the seed and
on the sequence's index in the text, so two runs indexed on the same text sample the same sequences.

Shapes: N experts, M bins of all experts, P active pairs, G (expert, sequence) groups, C examples, L tokens of a
sequence.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mxd.trainer.analysis.indexing.statistics import (
    ACTIVATION_BINS,
    HISTOGRAM_BINS,
    ActivePairs,
    ExpertStatistics,
    Ints,
    concatenate_sorted,
    group_starts,
    positions_in_groups,
    stable_argsort,
)

PRUNE_AT = 1 << 20
"""Minimum number of pending pairs that triggers pruning."""
_NO_LIMIT = np.uint64(2**32)
"""Threshold above every priority."""


class SelectedExamples(NamedTuple):
    """Selected examples, sorted by expert, bin and rank; each field [C]."""

    expert: Ints
    bin: Ints
    """0 for a top example; 1, 2, … for a random example of that activation bin, from the highest non-empty one."""
    rank: Ints
    sequence: Ints
    position: Ints
    activation: NDArray[np.float32]
    start: Ints
    """First index of the group's pairs in ``TopExamples.pairs``."""
    end: Ints
    """End index of the group's pairs in ``TopExamples.pairs``."""


class _Groups(NamedTuple):
    """Groups of neighbouring pairs of one expert in one sequence; each field [G]."""

    starts: Ints
    lengths: Ints

    @classmethod
    def from_pairs(cls, pairs: ActivePairs) -> Self:
        starts = group_starts(pairs.expert, pairs.sequence)
        return cls(starts, np.diff(starts, append=len(pairs.expert)))

    def peaks(self, pairs: ActivePairs) -> Ints:
        """Index of each group's largest activation, [G]; the first of equal ones."""
        largest_P = np.repeat(np.maximum.reduceat(pairs.activation, self.starts), self.lengths)
        indices = np.flatnonzero(pairs.activation == largest_P)
        group = np.repeat(np.arange(len(self.starts)), self.lengths)[indices]
        return indices[group_starts(group)]


def priorities(pairs: ActivePairs, seed: int) -> NDArray[np.uint64]:
    """Random 32-bit priority of each pair, [P]: splitmix64 of seed, expert, sequence and position."""
    with np.errstate(over="ignore"):
        state = (pairs.sequence.astype(np.uint64) << np.uint64(16)) | pairs.position
        state += pairs.expert.astype(np.uint64) * np.uint64(0xD1342543DE82EF95)
        state += np.uint64((seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) % 2**64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            state ^= state >> np.uint64(shift)
            state *= np.uint64(factor)
    return state >> np.uint64(32)


class TopExamples:
    """Running selection of top examples (at most one per sequence) and of random examples from each activation bin."""

    def __init__(self, num_experts: int, top: int, examples_per_bin: int, seed: int, prune_at: int = PRUNE_AT) -> None:
        self.top = top
        self.examples_per_bin = examples_per_bin
        self.seed = seed
        self.pairs = ActivePairs.empty()
        """Sorted pairs of the groups selected by the last pruning."""
        self._pending: list[ActivePairs] = []
        self._num_pending = 0
        self._prune_at = prune_at
        self._min_peak_N: NDArray[np.float32] = np.zeros(num_experts, np.float32)
        """Smallest peak activation that can still be a top example."""
        self._limit = _NO_LIMIT if examples_per_bin else np.uint64(0)
        self._max_priority_M: NDArray[np.uint64] = np.full(num_experts * ACTIVATION_BINS, self._limit)
        """Priority below which a pair can still be a random example."""

    def add(self, pairs: ActivePairs, statistics: ExpertStatistics, widened: dict[int, Ints]) -> None:
        if not len(pairs.expert):
            return
        self._widen(widened)
        groups = _Groups.from_pairs(pairs)
        largest_G = np.maximum.reduceat(pairs.activation, groups.starts)
        candidate_G = largest_G > self._min_peak_N[pairs.expert[groups.starts]]
        drawn_P = priorities(pairs, self.seed) < self._max_priority_M[_expert_bins(pairs, statistics)]
        candidate_G |= np.logical_or.reduceat(drawn_P, groups.starts)
        chosen = pairs.select(np.repeat(candidate_G, groups.lengths))
        self._pending.append(chosen)
        self._num_pending += len(chosen.expert)

    @property
    def needs_pruning(self) -> bool:
        """True if enough pairs are pending to make pruning worth its time."""
        return self._num_pending > max(self._prune_at, len(self.pairs.expert))

    def prune(self, statistics: ExpertStatistics) -> SelectedExamples:
        """Drop groups that are no longer selected. Returns the selected examples."""
        return self._select(concatenate_sorted([self.pairs, *self._pending]), statistics)

    def merge(self, parts: list[ActivePairs], statistics: ExpertStatistics) -> SelectedExamples:
        pairs = ActivePairs.concatenate([self.pairs, *self._pending, *parts])
        # Positions are already sorted within a group, so two stable sorts order all three columns.
        pairs = pairs.select(stable_argsort(pairs.sequence))
        self._min_peak_N[:] = 0
        self._max_priority_M[:] = self._limit
        return self._select(pairs.select(stable_argsort(pairs.expert)), statistics)

    def _select(self, pairs: ActivePairs, statistics: ExpertStatistics) -> SelectedExamples:
        self._pending, self._num_pending = [], 0
        groups = _Groups.from_pairs(pairs)
        largest, largest_rank = self._select_largest(pairs, groups)
        drawn, drawn_rank, bin_P = self._select_random(pairs, statistics)
        group_P = np.repeat(np.arange(len(groups.starts)), groups.lengths)
        stays_G = np.zeros(len(groups.starts), bool)
        stays_G[group_P[largest]] = stays_G[group_P[drawn]] = True
        stays_P = np.repeat(stays_G, groups.lengths)
        self.pairs = pairs.select(stays_P)
        new_index_P = np.cumsum(stays_P) - 1
        chosen = np.concatenate([largest, drawn])
        start = new_index_P[groups.starts[group_P[chosen]]]
        # Bins are numbered from 1, starting at the expert's highest non-empty one.
        expert, bin_from_lowest = np.divmod(bin_P[drawn], ACTIVATION_BINS)
        highest = np.floor(np.ldexp(statistics.largest[expert].astype(np.float64), 3 - statistics.exponents[expert]))
        drawn_bin = highest.astype(np.int64) - bin_from_lowest + 1
        selected = SelectedExamples(
            expert=pairs.expert[chosen].astype(np.int64),
            bin=np.concatenate([np.zeros(len(largest), np.int64), drawn_bin]),
            rank=np.concatenate([largest_rank, drawn_rank]),
            sequence=pairs.sequence[chosen].astype(np.int64),
            position=pairs.position[chosen].astype(np.int64),
            activation=pairs.activation[chosen],
            start=start,
            end=start + groups.lengths[group_P[chosen]],
        )
        order = np.lexsort((selected.rank, selected.bin, selected.expert))
        return SelectedExamples._make(field[order] for field in selected)

    def _select_largest(self, pairs: ActivePairs, groups: _Groups) -> tuple[Ints, Ints]:
        """Pair indices and ranks of each expert's top examples. Ties are in text order."""
        if not len(pairs.expert):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        peaks = groups.peaks(pairs)
        peaks = peaks[pairs.activation[peaks] >= self._min_peak_N[pairs.expert[peaks]]]
        # The bit patterns of positive floats sort like the floats.
        descending_keys = np.uint32(2**32 - 1) - pairs.activation[peaks].view(np.uint32)
        peaks = peaks[stable_argsort(descending_keys)]
        peaks = peaks[stable_argsort(pairs.expert[peaks])]
        ranks = positions_in_groups(pairs.expert[peaks])
        last = peaks[ranks == self.top - 1]
        self._min_peak_N[pairs.expert[last]] = pairs.activation[last]
        selected = ranks < self.top
        return peaks[selected], ranks[selected]

    def _select_random(self, pairs: ActivePairs, statistics: ExpertStatistics) -> tuple[Ints, Ints, Ints]:
        """Pair indices and ranks of each bin's random examples, and the bin of every pair, [P]."""
        bin_P = _expert_bins(pairs, statistics)
        priority_P = priorities(pairs, self.seed)
        # Without random examples the threshold is 0, and a priority may be 0 too.
        drawn = np.flatnonzero((priority_P <= self._max_priority_M[bin_P]) & (self.examples_per_bin > 0))
        drawn = drawn[stable_argsort(priority_P[drawn])]
        drawn = drawn[stable_argsort(bin_P[drawn])]
        ranks = positions_in_groups(bin_P[drawn])
        last = drawn[ranks == self.examples_per_bin - 1]
        self._max_priority_M[bin_P[last]] = priority_P[last]
        selected = ranks < self.examples_per_bin
        return drawn[selected], ranks[selected], bin_P

    def _widen(self, widened: dict[int, Ints]) -> None:
        """Merge the thresholds of bins that a range doubling merged. The lower threshold applies."""
        thresholds_NM = self._max_priority_M.reshape(-1, ACTIVATION_BINS)
        for doublings, experts in widened.items():
            before = thresholds_NM[experts]
            after = np.full_like(before, self._limit)
            np.minimum.at(after.T, np.arange(ACTIVATION_BINS) >> min(doublings, 3), before.T)
            thresholds_NM[experts] = after


def _expert_bins(pairs: ActivePairs, statistics: ExpertStatistics) -> Ints:
    """Activation bin of each pair, [P], from 0 (lowest), in those of all experts."""
    bin_P = statistics.histogram_bins(pairs) // (HISTOGRAM_BINS // ACTIVATION_BINS)
    return pairs.expert.astype(np.int64) * ACTIVATION_BINS + bin_P


SAMPLE_TOKENS = 131_072
"""Size of the sample in tokens. Its memory grows neither with the text nor with the number of experts."""


def sequence_key(seed: int, sequence: int) -> int:
    """Pseudo-random key of a sequence (splitmix64). The sequences with the smallest keys are sampled."""
    state = (seed * 0x9E3779B97F4A7C15 + sequence + 0x632BE59BD9B4E019) & 0xFFFFFFFFFFFFFFFF
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return state ^ (state >> 31)


class RoutedSample:
    """Sampled sequences with the experts active on each of their tokens."""

    def __init__(self, seed: int, context_length: int, tokens: int = SAMPLE_TOKENS) -> None:
        """Sample at most ``tokens`` tokens in sequences of ``context_length``, and at least one sequence."""
        self.seed = seed
        self.capacity = max(1, tokens // context_length)
        self._keys: dict[int, int] = {}
        """Sequence -> its key."""
        self.routed: dict[int, tuple[Ints, Ints]] = {}
        """Sequence -> number of active experts of each token, [L], and their ids, [P], token by token, strongest
        first."""
        self.token_ids: dict[int, NDArray[np.uint32]] = {}

    def add(self, pairs: ActivePairs, token_ids_SL: NDArray[np.integer], numbers_S: Ints) -> None:
        length, first = token_ids_SL.shape[1], int(numbers_S[0])
        for sequence in self._admit(numbers_S.tolist()):
            self.token_ids[sequence] = token_ids_SL[sequence - first].astype(np.uint32)
            here = pairs.sequence == sequence
            position, expert = pairs.position[here], pairs.expert[here]
            order = np.lexsort((-pairs.activation[here], position))
            self.routed[sequence] = (np.bincount(position, minlength=length), expert[order].astype(np.int64))

    def _admit(self, sequences: Sequence[int]) -> list[int]:
        """Admit sequences to the sample and evict others. Returns the admitted ones."""
        self._keys |= {sequence: sequence_key(self.seed, sequence) for sequence in sequences}
        for evicted in sorted(self._keys, key=self._keys.__getitem__)[self.capacity :]:
            for kept in (self._keys, self.routed, self.token_ids):
                kept.pop(evicted, None)
        return [sequence for sequence in sequences if sequence in self._keys]

    def merge(self, other: Self) -> None:
        for sequence in self._admit(other.sequences):
            self.routed[sequence], self.token_ids[sequence] = other.routed[sequence], other.token_ids[sequence]

    @property
    def sequences(self) -> list[int]:
        return sorted(self.routed)
