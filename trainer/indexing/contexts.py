"""The contexts that an index keeps of every expert: the largest, and a few at random from each interval.

Both are tables with room for a fixed number of rows a group, in which smaller keys push out larger ones, so a context
is kept or dropped by its own key and not by when it came. Where an expert is active around a kept token is logged
beside the tables, and cleared of what is no longer kept.

Shapes: G groups, R rows of a group, P offered rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trainer.indexing.statistics import INTERVALS, Floats, Ints, Pairs, Statistics


class Rows(NamedTuple):
    """Rows of a table, each field [P]."""

    group: Ints
    key: Floats
    sequence: Ints
    position: Ints
    coefficient: Floats

    def take(self, chosen: Ints | np.ndarray) -> Rows:
        """The chosen rows."""
        fields: tuple[Any, ...] = tuple(field[chosen] for field in self)
        return Rows(*fields)


class KeptRows:
    """For each of G groups, the R rows with the smallest keys that were ever offered."""

    def __init__(self, groups: int, rows: int) -> None:
        self.rows = rows
        self.key_GR: Floats = np.full((groups, rows), np.inf)
        self.sequence_GR: Ints = np.zeros((groups, rows), np.int64)
        self.position_GR: Ints = np.zeros((groups, rows), np.int64)
        self.coefficient_GR: Floats = np.zeros((groups, rows))

    def offer(self, offered: Rows) -> Rows:
        """Keep what belongs; returns the offered rows that were kept."""
        if not self.rows:
            return offered.take(np.zeros(0, np.int64))
        offered = offered.take(offered.key < self.key_GR[offered.group, -1])
        held = self.held(np.unique(offered.group))
        fresh = np.concatenate([np.zeros(len(held.group), bool), np.ones(len(offered.group), bool)])
        rows = _joined(held, offered)
        order = np.lexsort((rows.position, rows.sequence, rows.key, rows.group))
        rows, fresh = rows.take(order), fresh[order]
        place = _place_in_group(rows.group)
        kept = place < self.rows
        self._write(rows.take(kept), place[kept])
        return rows.take(kept & fresh)

    def held(self, groups: Ints) -> Rows:
        """The rows of some groups, in order."""
        filled = np.isfinite(self.key_GR[groups])
        return Rows(
            group=np.broadcast_to(groups[:, None], filled.shape)[filled],
            key=self.key_GR[groups][filled],
            sequence=self.sequence_GR[groups][filled],
            position=self.position_GR[groups][filled],
            coefficient=self.coefficient_GR[groups][filled],
        )

    def clear(self, groups: Ints) -> None:
        """Drop every row of some groups."""
        self.key_GR[groups] = np.inf

    def _write(self, rows: Rows, place: Ints) -> None:
        self.key_GR[rows.group, place] = rows.key
        self.sequence_GR[rows.group, place] = rows.sequence
        self.position_GR[rows.group, place] = rows.position
        self.coefficient_GR[rows.group, place] = rows.coefficient


def _joined(*parts: Rows) -> Rows:
    fields: tuple[Any, ...] = tuple(np.concatenate(values) for values in zip(*parts, strict=True))
    return Rows(*fields)


def _place_in_group(sorted_groups: Ints) -> Ints:
    """[P]: 0, 1, 2, … within each run of equal values."""
    places = np.arange(len(sorted_groups))
    starts = np.flatnonzero(np.diff(sorted_groups, prepend=-1))
    return places - np.repeat(starts, np.diff(np.append(starts, len(sorted_groups))))


def priorities(pairs: Pairs, seed: int) -> Floats:
    """[P]: a number in [0, 1) that depends on seed, expert, sequence and position alone (splitmix64 of them)."""
    state = np.full(len(pairs.expert), np.uint64(seed), np.uint64)
    with np.errstate(over="ignore"):
        for field in (pairs.expert, pairs.sequence, pairs.position):
            state = state * np.uint64(0x9E3779B97F4A7C15) + field.astype(np.uint64) + np.uint64(0x632BE59BD9B4E019)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state ^= state >> np.uint64(31)
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


class Contexts:
    """What is kept of every expert: its largest (one a sequence), and random ones from each interval."""

    def __init__(self, num_experts: int, top: int, per_interval: int, seed: int, log_limit: int = 2_000_000) -> None:
        """``log_limit`` is how many logged positions are held before those of dropped contexts are cleared."""
        self.num_experts = num_experts
        self.seed = seed
        self.top = KeptRows(num_experts, top)
        self.random = KeptRows(num_experts * INTERVALS, per_interval)
        self._log: list[Pairs] = []
        self._logged = 0
        self._log_limit = log_limit

    def add(self, pairs: Pairs, statistics: Statistics, grown: dict[int, Ints]) -> None:
        """Offer a batch of whole sequences, after ``statistics`` has counted it."""
        for doublings, experts in grown.items():
            self._merge_intervals(experts, doublings)
        peaks = _peaks(pairs)
        kept_top = self.top.offer(_rows(pairs, pairs.expert, -pairs.coefficient).take(peaks))
        group = pairs.expert * INTERVALS + statistics.intervals(pairs)
        kept_random = self.random.offer(_rows(pairs, group, priorities(pairs, self.seed)))
        self._remember(pairs, kept_top, kept_random)

    def active_around(self) -> Pairs:
        """Where experts are active in the sequences that are kept for them, sorted by expert, sequence, position."""
        logged = self._clear_log()
        return _take(logged, np.lexsort((logged.position, logged.sequence, logged.expert)))

    def _merge_intervals(self, experts: Ints, doublings: int) -> None:
        groups = (experts[:, None] * INTERVALS + np.arange(INTERVALS)).reshape(-1)
        held = self.random.held(groups)
        self.random.clear(groups)
        expert, interval = np.divmod(held.group, INTERVALS)
        self.random.offer(held._replace(group=expert * INTERVALS + (interval >> min(doublings, 3))))

    def _remember(self, pairs: Pairs, kept_top: Rows, kept_random: Rows) -> None:
        span = int(pairs.sequence.max(initial=0)) + 1
        wanted = np.concatenate(
            [
                kept_top.group * span + kept_top.sequence,
                kept_random.group // INTERVALS * span + kept_random.sequence,
            ]
        )
        chosen = _take(pairs, np.isin(pairs.expert * span + pairs.sequence, wanted))
        self._log.append(chosen)
        self._logged += len(chosen.expert)
        if self._logged > self._log_limit:
            self._clear_log()
            self._log_limit = max(self._log_limit, 2 * self._logged)

    def _clear_log(self) -> Pairs:
        """Drop what was logged for contexts that have been pushed out since."""
        logged = Pairs(*(np.concatenate(fields) for fields in zip(*self._log, strict=True)))
        top = self.top.held(np.arange(self.num_experts))
        random = self.random.held(np.arange(self.num_experts * INTERVALS))
        span = int(logged.sequence.max(initial=0)) + 1
        kept = np.concatenate([top.group * span + top.sequence, random.group // INTERVALS * span + random.sequence])
        chosen = _take(logged, np.isin(logged.expert * span + logged.sequence, kept))
        self._log, self._logged = [chosen], len(chosen.expert)
        return chosen


def _take(pairs: Pairs, chosen: np.ndarray) -> Pairs:
    return Pairs(*(field[chosen] for field in pairs))


def _rows(pairs: Pairs, group: Ints, key: Floats) -> Rows:
    return Rows(group, key, pairs.sequence, pairs.position, pairs.coefficient)


def _peaks(pairs: Pairs) -> Ints:
    """Places of the largest coefficient of each (expert, sequence), the first where several are equal."""
    order = np.lexsort((pairs.position, -pairs.coefficient, pairs.sequence, pairs.expert))
    expert, sequence = pairs.expert[order], pairs.sequence[order]
    first = np.ones(len(order), bool)
    first[1:] = (expert[1:] != expert[:-1]) | (sequence[1:] != sequence[:-1])
    return order[first]
