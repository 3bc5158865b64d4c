"""The columns of a run's experts in memory, for what no index of the store can answer at once: filters of several
columns, sets of experts that a search or a list names, how many fit, and what a row of the table shows.

86,015 experts take about 30 MB: 14 numbers each, the orders asked for so far, tokens and histograms as they are packed
in the store. Shapes: N experts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import text
from sqlalchemy.orm import Session

from backend.schemas import ExpertSort
from trainer.packing import count_packed, unpack_all

Mask = NDArray[np.bool_]
Places = NDArray[np.int64]
Floats = NDArray[np.float64]

SORTED: tuple[ExpertSort, ...] = tuple(name for name in get_args(ExpertSort) if name != "label")
SHOWN = ("active_tokens", "p99", "histogram_high")
"""Numbers that a row shows and nobody sorts by."""
PACKED = ("top_tokens", "histogram")
MEASURED_LATER = ("added_loss", "kl_up", "output_share", "input_dependence")
WHOLE = ("expert", "active_tokens")
NUMBERS = ("usage", "mean", "largest", "p99", "entropy", *MEASURED_LATER, "histogram_high")
"""What a row shows as the index says it, besides ``WHOLE`` ones, tokens and histogram."""


@dataclass(frozen=True)
class PackedLists:
    """A list of small numbers for each expert, as the store packs it."""

    packed: bytes
    ends: Places
    """[N + 1], bytes: the list of expert n lies from entry n to entry n + 1."""

    @classmethod
    def of(cls, lists: Sequence[bytes]) -> Self:
        """One list each."""
        return cls(b"".join(lists), np.cumsum([0, *map(len, lists)], dtype=np.int64))

    def at(self, places: Iterable[int]) -> list[list[int]]:
        """The lists at some places."""
        ends = self.ends
        some = PackedLists.of([self.packed[ends[place] : ends[place + 1]] for place in places])
        numbers, counts = some.all_numbers()
        flat, stops = numbers.tolist(), counts.tolist()
        return [flat[start:stop] for start, stop in pairwise(stops)]

    def all_numbers(self) -> tuple[Places, Places]:
        """The numbers of all lists, one after the other, and [N + 1] where each list begins among them."""
        return unpack_all(self.packed), count_packed(self.packed, self.ends)


DEAD = 1e300
"""Stands for every figure of an expert that was never active where the smallest come first: nobody looks for it."""
NO_LISTS: Mapping[str, PackedLists] = {}


@dataclass(frozen=True)
class Columns:
    """What the index says of every expert."""

    expert: Places
    """[N], ascending."""
    values: Mapping[str, Floats]
    """Name of a column -> its values [N]."""
    packed: Mapping[str, PackedLists] = field(default_factory=lambda: NO_LISTS)

    @cached_property
    def _orders(self) -> dict[str, Places]:
        return {}

    @cached_property
    def active(self) -> Places:
        """Experts that are active at all."""
        return self.expert[self.values["active_tokens"] > 0]

    @cached_property
    def dead_last(self) -> Columns:
        """These, for ascending orders: what was never active comes after all that was."""
        dead = self.values["active_tokens"] == 0
        raised: dict[str, Floats] = {
            name: np.where(dead, DEAD, self.values[name]) for name in SORTED if name != "expert"
        }
        return replace(self, values={**self.values, **raised})

    def neighbours(self, expert: int) -> tuple[int | None, int | None]:
        """The active experts before one and after it, in id."""
        before, after = np.searchsorted(self.active, expert), np.searchsorted(self.active, expert, side="right")
        return (
            int(self.active[before - 1]) if before > 0 else None,
            int(self.active[after]) if after < len(self.active) else None,
        )

    def places(self, experts: Iterable[int]) -> dict[int, int]:
        """Where those of some experts stand that have been indexed."""
        wanted = np.array(list(experts), np.int64)
        places = np.searchsorted(self.expert, wanted)
        pairs = zip(wanted.tolist(), places.tolist(), strict=True)
        return {expert: at for expert, at in pairs if at < len(self.expert) and self.expert[at] == expert}

    def order(self, sort: str) -> Places:
        """Places of all experts in ascending order of (value, expert)."""
        if sort not in self._orders:
            # Experts ascend already, and equal values keep their order.
            self._orders[sort] = np.argsort(self.values[sort], kind="stable")
        return self._orders[sort]

    def with_labels(self, labels: Mapping[int, str], descending: bool) -> Columns:
        """These, with ``label``: the place of each expert's label in the alphabet. Those without come last either way.

        Args:
            labels: of the run's experts, as far as they have any.
            descending: the order that is asked for.
        """
        # What people write changes at any time, and there is little of it: nothing is kept.
        rank_N = np.full(len(self.expert), -1.0 if descending else float(len(labels)))
        written = sorted(labels, key=lambda expert: (labels[expert].casefold(), expert))
        alphabetical = np.array(written, np.int64)
        places, ranks = np.searchsorted(self.expert, alphabetical), np.arange(len(alphabetical))
        indexed = self.expert[np.minimum(places, len(self.expert) - 1)] == alphabetical
        rank_N[places[indexed]] = ranks[indexed]
        labelled, is_labelled = places[indexed], np.zeros(len(self.expert), np.bool_)
        is_labelled[places[indexed]] = True
        without = np.flatnonzero(~is_labelled)
        columns = replace(self, values={**self.values, "label": rank_N})
        columns._orders["label"] = np.concatenate([without, labelled] if descending else [labelled, without])
        return columns

    def value(self, name: str, expert: int) -> float:
        """What an indexed expert has in a column."""
        return float(self.values[name][np.searchsorted(self.expert, expert)])

    def among(self, experts: NDArray[Any]) -> Mask:
        """Which experts are among some, of which some may stand there more than once."""
        named = np.zeros(int(self.expert[-1]) + 1 if len(self.expert) else 0, np.bool_)
        named[experts[experts < len(named)]] = True
        return named[self.expert]

    def after(
        self, chosen: Mask | None, sort: str, descending: bool, last: tuple[float, int] | None, count: int
    ) -> list[int]:
        """The next experts of a sorted selection.

        Args:
            chosen: the selection; None for all.
            sort: name of the column.
            descending: whether the order is turned round.
            last: (value, expert) of the last one that was given out; None for the beginning.
            count: how many, at most.
        """
        order = self.order(sort)
        kept = order if chosen is None else order[chosen[order]]
        if descending:
            end = len(kept) if last is None else self._place(kept, sort, *last, "left")
            shown = kept[max(0, end - count) : end][::-1]
        else:
            start = 0 if last is None else self._place(kept, sort, *last, "right")
            shown = kept[start : start + count]
        return [int(expert) for expert in self.expert[shown].tolist()]

    def _place(self, kept: Places, sort: str, value: float, expert: int, side: Literal["left", "right"]) -> int:
        """Where (value, expert) stands among the places ``kept``, before or behind one that equals it."""
        values = self.values[sort]
        find = bisect_left if side == "left" else bisect_right
        # Seventeen steps in Python are a tenth of the time in which NumPy gathers all values in their order.
        return find(kept, (value, expert), key=lambda at: (values[at], self.expert[at]))


def load_columns(session: Session, run_id: int) -> Columns:
    """Read every column of a run's experts that the table shows."""
    names = (*SORTED, *SHOWN, *PACKED)
    wanted = text(f"SELECT {', '.join(names)} FROM experts WHERE run_id = :run ORDER BY expert")
    rows = session.execute(wanted, {"run": run_id}).all()
    columns = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(names, ())
    values: dict[str, Floats] = {name: np.array(columns[name], np.float64) for name in (*SORTED, *SHOWN)}
    packed = {name: PackedLists.of([bytes(it) for it in columns[name]]) for name in PACKED}
    return Columns(values["expert"].astype(np.int64), values, packed)


def columns_stamp(session: Session, run_id: int) -> Hashable:
    """Changes whenever a column does that is measured after the index."""
    sums = ", ".join(f"(SELECT sum({name}) FROM experts WHERE run_id = :run)" for name in MEASURED_LATER)
    return tuple(session.execute(text(f"SELECT {sums}"), {"run": run_id}).one())
