"""Automatic labels. User labels take precedence."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, chain
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from mxd.backend.database.sql import among
from mxd.backend.schemas import AutomaticLabel
from mxd.trainer.storage.database.tables import AutomaticLabelRecord, RunRecord

FEATURES = "features"
FIELDS = ("label", "labeller", "balanced_accuracy", "precision", "recall", "test_examples")
MAX_SEARCHES = 64
QUOTES = " “\"'"
"""Characters before the first word of a label."""
MIN_SEARCHED_ACCURACY = 0.65
"""Balanced accuracy below which a measured label is not searched; pages do not show such labels."""


def automatic_labels(
    session: Session, run: RunRecord, experts: Collection[int]
) -> dict[int, tuple[AutomaticLabel, ...]]:
    """Return the automatic labels of those of ``experts`` that have any, the displayed one first.

    Labels by a language model take precedence over heuristic ones.
    """
    table = AutomaticLabelRecord
    query = select(table).where(table.run_id == run.id, among(session, table.expert, experts))
    labels_of: dict[int, list[AutomaticLabelRecord]] = defaultdict(list)
    for record in session.scalars(query):
        labels_of[record.expert].append(record)
    return {
        expert: tuple(
            AutomaticLabel.model_validate(_served([getattr(record, name) for name in FIELDS]))
            for record in sorted(records, key=lambda record: (record.labeller == FEATURES, -record.balanced_accuracy))
        )
        for expert, records in labels_of.items()
    }


def shown_labels(session: Session, run: RunRecord, experts: Collection[int]) -> dict[int, AutomaticLabel]:
    """Return the displayed automatic label of each expert that has one."""
    return {expert: labels[0] for expert, labels in automatic_labels(session, run, experts).items()}


def is_shown(label: AutomaticLabel) -> bool:
    """Return whether pages show the label: its score is not known to be low."""
    return label.balanced_accuracy is None or label.balanced_accuracy >= MIN_SEARCHED_ACCURACY


@dataclass(frozen=True)
class ShownLabels:
    """Displayed automatic labels of a run in memory, about 300 bytes each."""

    rows: Mapping[int, tuple[Any, ...]]
    """Expert -> ``FIELDS``, best labels first."""

    def of(self, expert: int) -> dict[str, Any] | None:
        """Return the label of an expert as ``AutomaticLabel``."""
        row = self.rows.get(expert)
        return None if row is None else _served(row)

    @cached_property
    def best_first(self) -> Sequence[int]:
        """Experts whose label is shown, best labels first."""
        return [expert for expert, row in self.rows.items() if _is_searched(row)]

    @cached_property
    def like(self) -> Callable[[str], list[int]]:
        """Function that returns the experts whose label contains a text, without weak labels.

        Labels that have the text as whole words come first: “we” before “well”. Labels with a word that begins with it
        come next: “kingdom” before “making”. Among both, those at the beginning come first: “Numbers after …” before
        “, after numbers”. Then the best ones.
        """
        searched = {expert: self.rows[expert] for expert in self.best_first}
        # One text with a line per label is searched in a single pass in C.
        lines = [row[0].replace("\n", " ").casefold() for row in searched.values()]
        whole, experts = "\n".join(lines), list(searched)
        starts = [0, *accumulate(len(line) + 1 for line in lines)]

        @lru_cache(MAX_SEARCHES)
        def matching_experts(folded: str) -> list[int]:
            ranked: list[list[int]] = [[] for _ in range(5)]
            at = whole.find(folded)
            while at >= 0:
                line = bisect_right(starts, at) - 1
                before = whole[starts[line] : at]
                is_prefix = whole[at + len(folded) : at + len(folded) + 1].isalnum()
                is_later = before.rsplit(": ", 1)[-1].strip(QUOTES) != ""
                ranked[4 if before[-1:].isalnum() else 2 * is_prefix + is_later].append(experts[line])
                at = whole.find(folded, starts[line + 1])
            return list(chain.from_iterable(ranked))

        return lambda text: matching_experts(text.replace("\n", " ").casefold())


def load_shown_labels(session: Session, run_id: int) -> ShownLabels:
    """Load the displayed automatic labels, with the precedence of ``automatic_labels``."""
    table = AutomaticLabelRecord
    query = select(table.expert, *(getattr(table, name) for name in FIELDS)).where(table.run_id == run_id)
    best: dict[int, tuple[Any, ...]] = {}
    for expert, *row in session.execute(query):
        current = best.get(expert)
        if current is None or _order(row) < _order(current):
            best[expert] = tuple(row)
    accuracy = FIELDS.index("balanced_accuracy")
    return ShownLabels(dict(sorted(best.items(), key=lambda item: (-item[1][accuracy], item[0]))))


def _served(row: Sequence[Any]) -> dict[str, Any]:
    """Return ``FIELDS`` as ``AutomaticLabel``. Imported labels have no test examples, so no score was measured."""
    label = dict(zip(FIELDS, row, strict=True))
    return label if label["test_examples"] else label | {"balanced_accuracy": None}


def _is_searched(row: Sequence[Any]) -> bool:
    label = _served(row)
    return label["balanced_accuracy"] is None or label["balanced_accuracy"] >= MIN_SEARCHED_ACCURACY


def _order(row: Sequence[Any]) -> tuple[bool, float]:
    _, labeller, balanced_accuracy, *_ = row
    return labeller == FEATURES, -balanced_accuracy


def shown_labels_stamp(session: Session, run_id: int) -> Hashable:
    """Return a value that changes with the run's automatic labels."""
    table = AutomaticLabelRecord
    query = select(func.count(), func.max(table.created_at)).where(table.run_id == run_id)
    return tuple(session.execute(query).one())
