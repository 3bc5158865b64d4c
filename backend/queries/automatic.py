"""Labels that programs gave. What a person wrote always goes before them, and they are marked wherever they stand."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from backend.queries.columns import among
from backend.schemas import AutomaticLabel
from trainer.store import RunRecord
from trainer.tables import AutomaticLabelRecord

FEATURES = "features"
FIELDS = ("label", "maker", "balanced_accuracy", "precision", "recall", "tested")
SEARCHES_HELD = 64


def automatic_labels(
    session: Session, run: RunRecord, experts: Collection[int]
) -> dict[int, tuple[AutomaticLabel, ...]]:
    """All automatic labels of those of ``experts`` that have any, the one to show first.

    One that a language model was asked for goes before the one that came by itself.
    """
    table = AutomaticLabelRecord
    wanted = select(table).where(table.run_id == run.id, among(session, table.expert, experts))
    found: dict[int, list[AutomaticLabelRecord]] = defaultdict(list)
    for record in session.scalars(wanted):
        found[record.expert].append(record)
    return {
        expert: tuple(
            AutomaticLabel.model_validate(record, from_attributes=True)
            for record in sorted(records, key=lambda record: (record.maker == FEATURES, -record.balanced_accuracy))
        )
        for expert, records in found.items()
    }


def shown_labels(session: Session, run: RunRecord, experts: Collection[int]) -> dict[int, AutomaticLabel]:
    """The automatic label to show of each expert that has one."""
    return {expert: labels[0] for expert, labels in automatic_labels(session, run, experts).items()}


@dataclass(frozen=True)
class ShownLabels:
    """The automatic label to show of every expert of a run that has one, in memory: about 300 bytes each."""

    rows: Mapping[int, tuple[Any, ...]]
    """Expert -> ``FIELDS``, those that fit best first."""

    def of(self, expert: int) -> dict[str, Any] | None:
        """An expert's, in the shape of ``AutomaticLabel``."""
        row = self.rows.get(expert)
        return None if row is None else dict(zip(FIELDS, row, strict=True))

    @cached_property
    def like(self) -> Callable[[str], list[int]]:
        """Experts with a label that contains a text, the best fitting labels first."""
        # One text with a line for each label: looking for something in it is one pass in C.
        lines = [row[0].replace("\n", " ").casefold() for row in self.rows.values()]
        whole, experts = "\n".join(lines), list(self.rows)
        starts = [0, *accumulate(len(line) + 1 for line in lines)]

        @lru_cache(SEARCHES_HELD)
        def found(folded: str) -> list[int]:
            experts_found: list[int] = []
            at = whole.find(folded)
            while at >= 0:
                line = bisect_right(starts, at) - 1
                experts_found.append(experts[line])
                at = whole.find(folded, starts[line + 1])
            return experts_found

        return lambda text: found(text.replace("\n", " ").casefold())


def load_shown_labels(session: Session, run_id: int) -> ShownLabels:
    """Read the automatic labels to show, by the rule of ``automatic_labels``."""
    table = AutomaticLabelRecord
    wanted = select(table.expert, *(getattr(table, name) for name in FIELDS)).where(table.run_id == run_id)
    best: dict[int, tuple[Any, ...]] = {}
    for expert, *row in session.execute(wanted):
        held = best.get(expert)
        if held is None or _order(row) < _order(held):
            best[expert] = tuple(row)
    accuracy = FIELDS.index("balanced_accuracy")
    return ShownLabels(dict(sorted(best.items(), key=lambda item: (-item[1][accuracy], item[0]))))


def _order(row: Sequence[Any]) -> tuple[bool, float]:
    _, maker, balanced_accuracy, *_ = row
    return maker == FEATURES, -balanced_accuracy


def shown_labels_stamp(session: Session, run_id: int) -> Hashable:
    """Changes whenever an automatic label of the run does."""
    table = AutomaticLabelRecord
    wanted = select(func.count(), func.max(table.created_at)).where(table.run_id == run_id)
    return tuple(session.execute(wanted).one())
