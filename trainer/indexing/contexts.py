"""The contexts that an index keeps of every expert: the largest, and a few at random from each interval.

What is held is a set of (expert, sequence) pairs with everything that is active in them. A batch adds those that may
still belong: a coefficient above the smallest that is kept, or a random number below the largest that is kept. From
time to time it is settled who stays, and the thresholds rise. Each context is kept or dropped by its own values and not
by when it came, so parts of a text can be gathered apart and joined, and nothing grows with the text.

Shapes: N experts, M intervals of all experts, P pairs, G (expert, sequence) groups, C contexts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer.indexing.pairs import (
    Ints,
    Pairs,
    order_by,
    places_in_runs,
    run_lengths,
    run_starts,
    sorted_pairs,
)
from trainer.indexing.statistics import INTERVALS, Statistics

SETTLE_AT = 1 << 20
"""Pairs that are added before it is settled who stays, unless more are held than that."""
_ANY = np.uint64(2**32)
"""Above every priority."""


class Kept(NamedTuple):
    """The contexts of an index, by expert, interval and rank; each field [C]."""

    expert: Ints
    interval: Ints
    """0: among the largest. 1, 2, …: kept at random from that interval, the highest that holds anything first."""
    rank: Ints
    sequence: Ints
    position: Ints
    coefficient: NDArray[np.float32]
    start: Ints
    """Of what is active in the sequence, in the pairs beside."""
    end: Ints


class _Groups(NamedTuple):
    """Neighbouring pairs of one expert in one sequence, [G]."""

    starts: Ints
    lengths: Ints

    @classmethod
    def of(cls, pairs: Pairs) -> _Groups:
        starts = run_starts(pairs.expert, pairs.sequence)
        return cls(starts, run_lengths(starts, len(pairs.expert)))

    def peaks(self, pairs: Pairs) -> Ints:
        """The place of each group's largest coefficient, the first where several are equal."""
        largest_P = np.repeat(np.maximum.reduceat(pairs.coefficient, self.starts), self.lengths)
        places = np.flatnonzero(pairs.coefficient == largest_P)
        group = np.repeat(np.arange(len(self.starts)), self.lengths)[places]
        return places[run_starts(group)]


def priorities(pairs: Pairs, seed: int) -> NDArray[np.uint64]:
    """[P]: a number of 32 bits that depends on seed, expert, sequence and position alone (splitmix64 of them)."""
    with np.errstate(over="ignore"):
        state = (pairs.sequence.astype(np.uint64) << np.uint64(16)) | pairs.position
        state += pairs.expert.astype(np.uint64) * np.uint64(0xD1342543DE82EF95)
        state += np.uint64((seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) % 2**64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            state ^= state >> np.uint64(shift)
            state *= np.uint64(factor)
    return state >> np.uint64(32)


class Contexts:
    """What is kept of every expert: its largest (one a sequence), and random ones from each interval."""

    def __init__(self, num_experts: int, top: int, per_interval: int, seed: int, settle_at: int = SETTLE_AT) -> None:
        self.top = top
        self.per_interval = per_interval
        self.seed = seed
        self.pairs = Pairs.none()
        """Sorted; as of the last settling."""
        self._fresh: list[Pairs] = []
        self._fresh_pairs = 0
        self._settle_at = settle_at
        self._smallest_N: NDArray[np.float32] = np.zeros(num_experts, np.float32)
        """A context belongs to the largest only if it is above this."""
        drawn = _ANY if per_interval else np.uint64(0)
        self._largest_priority_M: NDArray[np.uint64] = np.full(num_experts * INTERVALS, drawn)
        """A context is drawn only if its priority is below this."""

    def add(self, pairs: Pairs, statistics: Statistics, grown: dict[int, Ints]) -> None:
        """Offer a batch of whole sequences, later ones than before, after ``statistics`` has counted it."""
        if not len(pairs.expert):
            return
        self._widen(grown)
        groups = _Groups.of(pairs)
        largest_G = np.maximum.reduceat(pairs.coefficient, groups.starts)
        wanted_G = largest_G > self._smallest_N[pairs.expert[groups.starts]]
        drawn_P = priorities(pairs, self.seed) < self._largest_priority_M[_interval_of(pairs, statistics)]
        wanted_G |= np.logical_or.reduceat(drawn_P, groups.starts)
        chosen = pairs.take(np.repeat(wanted_G, groups.lengths))
        self._fresh.append(chosen)
        self._fresh_pairs += len(chosen.expert)

    @property
    def wants_settling(self) -> bool:
        """Whether enough has been added to make settling worth its time."""
        return self._fresh_pairs > max(self._settle_at, len(self.pairs.expert))

    def settle(self, statistics: Statistics) -> Kept:
        """Drop what has been pushed out, and say what is kept."""
        return self._join(sorted_pairs([self.pairs, *self._fresh]), statistics)

    def merge(self, parts: list[Pairs], statistics: Statistics) -> Kept:
        """Join what was kept of other parts of the text; ``statistics`` are those of all parts together."""
        pairs = Pairs.joined([self.pairs, *self._fresh, *parts])
        # Within a group the order is right already, so two stable orders make one of three columns.
        pairs = pairs.take(order_by(pairs.sequence))
        self._smallest_N[:] = 0
        if self.per_interval:
            self._largest_priority_M[:] = _ANY
        return self._join(pairs.take(order_by(pairs.expert)), statistics)

    def _join(self, pairs: Pairs, statistics: Statistics) -> Kept:
        self._fresh, self._fresh_pairs = [], 0
        groups = _Groups.of(pairs)
        largest, largest_rank = self._largest(pairs, groups)
        drawn, drawn_rank, interval_of_P = self._drawn(pairs, statistics)
        group_of_P = np.repeat(np.arange(len(groups.starts)), groups.lengths)
        stays_G = np.zeros(len(groups.starts), bool)
        stays_G[group_of_P[largest]] = stays_G[group_of_P[drawn]] = True
        stays_P = np.repeat(stays_G, groups.lengths)
        self.pairs = pairs.take(stays_P)
        moved_P = np.cumsum(stays_P) - 1
        chosen = np.concatenate([largest, drawn])
        start = moved_P[groups.starts[group_of_P[chosen]]]
        kept = Kept(
            expert=pairs.expert[chosen].astype(np.int64),
            interval=np.concatenate(
                [np.zeros(len(largest), np.int64), _from_highest(interval_of_P[drawn], statistics)]
            ),
            rank=np.concatenate([largest_rank, drawn_rank]),
            sequence=pairs.sequence[chosen].astype(np.int64),
            position=pairs.position[chosen].astype(np.int64),
            coefficient=pairs.coefficient[chosen],
            start=start,
            end=start + groups.lengths[group_of_P[chosen]],
        )
        order = np.lexsort((kept.rank, kept.interval, kept.expert))
        fields: tuple[Any, ...] = tuple(field[order] for field in kept)
        return Kept(*fields)

    def _largest(self, pairs: Pairs, groups: _Groups) -> tuple[Ints, Ints]:
        """Places and ranks of each expert's largest peaks; equal ones in the order of the text."""
        if not len(pairs.expert):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        peaks = groups.peaks(pairs)
        peaks = peaks[pairs.coefficient[peaks] >= self._smallest_N[pairs.expert[peaks]]]
        # Positive floats are ordered as their bits are.
        falling = np.uint32(2**32 - 1) - pairs.coefficient[peaks].view(np.uint32)
        peaks = peaks[order_by(falling)]
        peaks = peaks[order_by(pairs.expert[peaks])]
        ranks = places_in_runs(pairs.expert[peaks])
        last = peaks[ranks == self.top - 1]
        self._smallest_N[pairs.expert[last]] = pairs.coefficient[last]
        kept = ranks < self.top
        return peaks[kept], ranks[kept]

    def _drawn(self, pairs: Pairs, statistics: Statistics) -> tuple[Ints, Ints, Ints]:
        """Places and ranks of each interval's contexts with the smallest priorities; and the interval of every pair."""
        interval_of_P = _interval_of(pairs, statistics)
        priority_P = priorities(pairs, self.seed)
        # Where none are kept, the threshold is 0, and so may a priority be.
        drawn = np.flatnonzero((priority_P <= self._largest_priority_M[interval_of_P]) & (self.per_interval > 0))
        drawn = drawn[order_by(priority_P[drawn])]
        drawn = drawn[order_by(interval_of_P[drawn])]
        ranks = places_in_runs(interval_of_P[drawn])
        last = drawn[ranks == self.per_interval - 1]
        self._largest_priority_M[interval_of_P[last]] = priority_P[last]
        kept = ranks < self.per_interval
        return drawn[kept], ranks[kept], interval_of_P

    def _widen(self, grown: dict[int, Ints]) -> None:
        """When ranges double, neighbouring intervals become one, and what is above either's threshold stays out."""
        thresholds_NM = self._largest_priority_M.reshape(-1, INTERVALS)
        outside = _ANY if self.per_interval else np.uint64(0)
        for doublings, experts in grown.items():
            before = thresholds_NM[experts]
            after = np.full_like(before, outside)
            np.minimum.at(after.T, np.arange(INTERVALS) >> min(doublings, 3), before.T)
            thresholds_NM[experts] = after


def _interval_of(pairs: Pairs, statistics: Statistics) -> Ints:
    return pairs.expert.astype(np.int64) * INTERVALS + statistics.intervals(pairs)


def _from_highest(interval_of_expert: Ints, statistics: Statistics) -> Ints:
    """Intervals numbered from 1, from the highest of an expert that holds anything."""
    expert, place = np.divmod(interval_of_expert, INTERVALS)
    highest = np.floor(np.ldexp(statistics.largest[expert].astype(np.float64), 3 - statistics.exponents[expert]))
    return highest.astype(np.int64) - place + 1


class Sequences:
    """The token sequences that kept contexts point into; others are forgotten."""

    def __init__(self) -> None:
        self.token_ids: dict[int, NDArray[np.uint32]] = {}

    def add(self, token_ids_SL: NDArray[np.integer], numbers_S: Ints) -> None:
        """Hold some, until ``keep`` says otherwise."""
        self.token_ids.update(zip(numbers_S.tolist(), token_ids_SL.astype(np.uint32), strict=True))

    def keep(self, numbers: NDArray[np.integer]) -> None:
        """Forget all but these."""
        wanted = set(np.unique(numbers).tolist())
        # Copied: a row that is a view would hold the whole batch that it came in.
        self.token_ids = {
            number: ids if ids.base is None else ids.copy()
            for number, ids in self.token_ids.items()
            if number in wanted
        }
