"""The columns of a run's experts in memory, for what no index of the store can answer at once: filters of several
columns, sets of experts that a search or a list names, and how many fit.

Shapes: N experts.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import text
from sqlalchemy.orm import Session

from backend.schemas import ExpertSort

Mask = NDArray[np.bool_]
Places = NDArray[np.int64]
Floats = NDArray[np.float64]

SORTED: tuple[ExpertSort, ...] = tuple(name for name in get_args(ExpertSort) if name != "label")
MEASURED_LATER = ("added_loss", "kl_up", "output_share", "input_dependence")


@dataclass(frozen=True)
class Columns:
    """What every indexed expert can be sorted by."""

    expert: Places
    """[N], ascending."""
    values: Mapping[str, Floats]
    """Name of a column -> its values [N]."""

    @cached_property
    def _orders(self) -> dict[str, Places]:
        return {}

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
        columns = Columns(self.expert, {**self.values, "label": rank_N})
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

    def after(self, chosen: Mask, sort: str, descending: bool, last: tuple[float, int] | None, count: int) -> list[int]:
        """The next experts of a sorted selection.

        Args:
            chosen: the selection.
            sort: name of the column.
            descending: whether the order is turned round.
            last: (value, expert) of the last one that was given out; None for the beginning.
            count: how many, at most.
        """
        order = self.order(sort)
        kept = order[chosen[order]]
        if descending:
            kept = kept[::-1]
        if last is not None:
            value, expert = self.values[sort][kept], self.expert[kept]
            sign = -1 if descending else 1
            behind = (sign * value > sign * last[0]) | ((value == last[0]) & (sign * expert > sign * last[1]))
            kept = kept[behind]
        return [int(place) for place in self.expert[kept[:count]]]


def load_columns(session: Session, run_id: int) -> Columns:
    """Read every column that can be sorted by."""
    names = ", ".join(SORTED)
    wanted = text(f"SELECT {names} FROM experts WHERE run_id = :run ORDER BY expert")
    rows_NC = np.array(session.execute(wanted, {"run": run_id}).all(), np.float64).reshape(-1, len(SORTED))
    values: dict[str, Floats] = {name: np.ascontiguousarray(rows_NC[:, place]) for place, name in enumerate(SORTED)}
    return Columns(values["expert"].astype(np.int64), values)


def columns_stamp(session: Session, run_id: int) -> Hashable:
    """Changes whenever a column does that is measured after the index: its ends, found at the ends of its index."""
    of_run = "FROM experts WHERE run_id = :run"
    ends = [f"(SELECT {end}({name}) {of_run})" for name in MEASURED_LATER for end in ("min", "max")]
    return tuple(session.execute(text(f"SELECT {', '.join(ends)}"), {"run": run_id}).one())
