"""In-memory columns of a run's experts, for queries that no database index serves.

These are filters on several columns, sets of experts from a search or a list, and counts of matches. 86,015 experts
take about 30 MB: 14 numbers each, sort orders, and compressed top tokens and histograms. Shapes: N experts.
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

from mxd.backend.queries.recurrence import FoundAgain, found_again
from mxd.backend.schemas.experts import ExpertSort
from mxd.trainer.storage.database.column_types import count_packed, unpack_all

Mask = NDArray[np.bool_]
Places = NDArray[np.int64]
Floats = NDArray[np.float64]

NOT_STORED: tuple[ExpertSort, ...] = ("label", "recurrence")
"""Orders without a column of the table of experts."""
SORTED: tuple[ExpertSort, ...] = tuple(name for name in get_args(ExpertSort) if name not in NOT_STORED)
SHOWN = ("active_tokens", "p99", "histogram_high")
"""Displayed columns without a sort order."""
PACKED = ("top_tokens", "histogram")
MEASURED = ("loss_increase", "kl_amplified", "output_share", "input_dependence")
WHOLE = ("expert", "active_tokens")
NUMBERS = ("density", "mean_activation", "max_activation", "p99", "entropy", *MEASURED, "histogram_high")
"""Float columns of a row."""
UNMEASURED = dict.fromkeys(MEASURED)
"""Effects of an expert that are not measured. Its output_share is stored as 0, which no measured one is."""
NOT_COMPARED: Mapping[str, int | None] = {"recurrence": None, "compared_runs": None}
"""Recurrence of an expert that was not measured."""


@dataclass(frozen=True)
class PackedLists:
    """A compressed list of small integers per expert."""

    packed: bytes
    ends: Places
    """[N + 1] byte offsets: the list of expert n is between entries n and n + 1."""

    @classmethod
    def of(cls, lists: Sequence[bytes]) -> Self:
        """Concatenate one compressed list per expert."""
        return cls(b"".join(lists), np.cumsum([0, *map(len, lists)], dtype=np.int64))

    def at(self, places: Iterable[int]) -> list[list[int]]:
        """Return the lists at some indices."""
        ends = self.ends
        some = PackedLists.of([self.packed[ends[place] : ends[place + 1]] for place in places])
        numbers, counts = some.all_numbers()
        flat, stops = numbers.tolist(), counts.tolist()
        return [flat[start:stop] for start, stop in pairwise(stops)]

    def all_numbers(self) -> tuple[Places, Places]:
        """Return the integers of all lists concatenated, and [N + 1] offsets of the lists."""
        return unpack_all(self.packed), count_packed(self.packed, self.ends)


DEAD = 1e300
"""Sort key of experts that come last in ascending orders; its negative in descending ones. Beyond any real value."""
NO_LISTS: Mapping[str, PackedLists] = {}


@dataclass(frozen=True)
class Columns:
    """Statistics of every expert as columns."""

    expert: Places
    """[N], ascending."""
    values: Mapping[str, Floats]
    """Column name -> values [N]."""
    packed: Mapping[str, PackedLists] = field(default_factory=lambda: NO_LISTS)

    @cached_property
    def _orders(self) -> dict[str, Places]:
        return {}

    @cached_property
    def active(self) -> Places:
        """Ids of the active experts."""
        return self.expert[self.values["active_tokens"] > 0]

    @cached_property
    def ascending(self) -> Columns:
        """Columns for ascending orders, with experts without a value last: dead or not measured."""
        dead = self.values["active_tokens"] == 0
        last = {name: self._unmeasured if name in MEASURED else dead for name in SORTED if name != "expert"}
        last["recurrence"] = self.values["recurrence"] < 0
        return self._with_keys({name: np.where(mask, DEAD, self.values[name]) for name, mask in last.items()})

    @cached_property
    def descending(self) -> Columns:
        """Columns for descending orders, with experts that are not measured last."""
        return self._with_keys({name: np.where(self._unmeasured, -DEAD, self.values[name]) for name in MEASURED})

    @property
    def _unmeasured(self) -> Mask:
        unmeasured: Mask = self.values["output_share"] == 0
        return unmeasured

    def _with_keys(self, keys: Mapping[str, Floats]) -> Columns:
        return replace(self, values={**self.values, **keys})

    def neighbours(self, expert: int) -> tuple[int | None, int | None]:
        """Return the active experts with the next lower and the next higher id."""
        before, after = np.searchsorted(self.active, expert), np.searchsorted(self.active, expert, side="right")
        return (
            int(self.active[before - 1]) if before > 0 else None,
            int(self.active[after]) if after < len(self.active) else None,
        )

    def places(self, experts: Iterable[int]) -> dict[int, int]:
        """Return expert -> index for those experts that are indexed."""
        requested = np.array(list(experts), np.int64)
        places = np.searchsorted(self.expert, requested)
        pairs = zip(requested.tolist(), places.tolist(), strict=True)
        return {expert: at for expert, at in pairs if at < len(self.expert) and self.expert[at] == expert}

    def order(self, sort: str) -> Places:
        """Return the indices of all experts in ascending order of (value, expert)."""
        if sort not in self._orders:
            # Ids ascend already, and a stable sort keeps the order of equal values.
            self._orders[sort] = np.argsort(self.values[sort], kind="stable")
        return self._orders[sort]

    def with_labels(self, labels: Mapping[int, str], automatic: Iterable[int], descending: bool) -> Columns:
        """Return the columns with ``label``, the place of each expert in the order of labels.

        User labels come first, in alphabetical order, and experts without a label last.

        Args:
            labels: user labels by expert.
            automatic: experts with an automatic label, best first. They follow those with a user label.
            descending: sort order of the user labels.
        """
        written = sorted(labels, key=lambda expert: (labels[expert].casefold(), expert), reverse=descending)
        ordered = np.array([*written, *(expert for expert in automatic if expert not in labels)], np.int64)
        places = np.searchsorted(self.expert, ordered)
        places = places[self.expert[np.minimum(places, len(self.expert) - 1)] == ordered]
        rank_N = np.full(len(self.expert), -1.0 if descending else float(len(places)))
        rank_N[places] = np.arange(len(places))[:: -1 if descending else 1]
        is_labelled = np.zeros(len(self.expert), np.bool_)
        is_labelled[places] = True
        without = np.flatnonzero(~is_labelled)
        columns = replace(self, values={**self.values, "label": rank_N})
        columns._orders["label"] = np.concatenate([without, places[::-1]] if descending else [places, without])
        return columns

    def with_matches(self, matches: Iterable[int]) -> Columns:
        """Return columns sorted by label with ``match``: the place with ``matches`` first, the others by label."""
        first = np.array(list(self.places(matches).values()), np.int64)
        rest = self.order("label")
        order = np.concatenate([first, rest[~np.isin(rest, first)]])
        columns = replace(self, values={**self.values, "match": np.argsort(order).astype(np.float64)})
        columns._orders["match"] = order
        return columns

    def value(self, name: str, expert: int) -> float:
        """Return the value of an expert in a column."""
        return float(self.values[name][np.searchsorted(self.expert, expert)])

    def among(self, experts: NDArray[Any]) -> Mask:
        """Return a mask of the experts that occur in ``experts``, which may have duplicates."""
        named = np.zeros(int(self.expert[-1]) + 1 if len(self.expert) else 0, np.bool_)
        named[experts[experts < len(named)]] = True
        return named[self.expert]

    def after(
        self, chosen: Mask | None, sort: str, descending: bool, last: tuple[float, int] | None, count: int
    ) -> list[int]:
        """Return the next experts of a sorted selection.

        Args:
            chosen: mask of the selection; None for all.
            sort: name of the column.
            descending: sort order.
            last: (value, expert) of the last expert of the previous page; None for the first page.
            count: maximum number of experts.
        """
        order = self.order(sort)
        places = order if chosen is None else order[chosen[order]]
        if descending:
            end = len(places) if last is None else self._place(places, sort, *last, "left")
            shown = places[max(0, end - count) : end][::-1]
        else:
            start = 0 if last is None else self._place(places, sort, *last, "right")
            shown = places[start : start + count]
        return [int(expert) for expert in self.expert[shown].tolist()]

    def _place(self, places: Places, sort: str, value: float, expert: int, side: Literal["left", "right"]) -> int:
        """Return the insertion point of (value, expert) in the sorted indices ``kept``."""
        values = self.values[sort]
        find = bisect_left if side == "left" else bisect_right
        # Seventeen bisection steps in Python take a tenth of the time of gathering all values with NumPy.
        return find(places, (value, expert), key=lambda at: (values[at], self.expert[at]))


def load_columns(session: Session, run_id: int) -> Columns:
    """Load the columns of a run's experts."""
    names = (*SORTED, *SHOWN, *PACKED)
    requested = text(f"SELECT {', '.join(names)} FROM experts WHERE run_id = :run ORDER BY expert")
    rows = session.execute(requested, {"run": run_id}).all()
    columns = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(names, ())
    values: dict[str, Floats] = {name: np.array(columns[name], np.float64) for name in (*SORTED, *SHOWN)}
    values |= _recurrences(found_again(session, run_id), values["expert"])
    packed = {name: PackedLists.of([bytes(value) for value in columns[name]]) for name in PACKED}
    return Columns(values["expert"].astype(np.int64), values, packed)


def _recurrences(stored: Mapping[int, FoundAgain], expert_N: Floats) -> dict[str, Floats]:
    """Columns of recurrence. The whole part is the number of other runs, and -1 stands for experts that were not
    measured. The mean firing cosine, below 1, sorts experts that were found again in as many runs."""
    recurrence_N, runs_N = np.full(len(expert_N), -1.0), np.zeros(len(expert_N))
    for place, expert in enumerate(expert_N.tolist()):
        if (each := stored.get(int(expert))) is not None:
            recurrence_N[place] = each.recurrence + min(max(each.firing_cosine, 0.0), 0.999)
            runs_N[place] = each.compared_runs
    return {"recurrence": recurrence_N, "compared_runs": runs_N}


def columns_stamp(session: Session, run_id: int) -> Hashable:
    """Return a value that changes when measurements are added after indexing."""
    sums = ", ".join(f"(SELECT sum({name}) FROM experts WHERE run_id = :run)" for name in MEASURED)
    sums += ", (SELECT sum(firing_cosine + firing_chance + writing_cosine) FROM recurrences WHERE run_id = :run)"
    return tuple(session.execute(text(f"SELECT {sums}"), {"run": run_id}).one())
