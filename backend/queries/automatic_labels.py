"""Automatic labels. User labels take precedence."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate, chain
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from mxd.backend.database.annotations import labels_of
from mxd.backend.database.engine import among
from mxd.backend.schemas.experts import AutomaticLabel
from mxd.trainer.config.analysis import FUNCTION_WORDS
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import AutomaticLabelRecord, RunRecord
from mxd.trainer.utils.bootstrap import wilson_interval

FEATURES = "features"
FIELDS = ("label", "labeller", "balanced_accuracy", "precision", "recall", "test_examples")
MAX_SEARCHES = 64
QUOTES = " “\"'"
"""Characters before the first word of a label."""
QUOTED = re.compile("“([^-”][^”]*)”")
"""Words of a rule-based label, without endings such as “-day”."""
MIN_ACCURACY, MIN_PRECISION, MIN_RECALL = 0.65, 0.25, 0.1
"""A label with a lower measured balanced accuracy, precision or recall is weak: pages do not use it as a name."""
MIN_DENSITY = 0.0005
"""Density from which a recall of 0 counts. Rarer experts have at most about 30 active tokens in the tested half of an
index's sample of at most 131,072 tokens. The 95 % interval of a recall of 0 then includes ``MIN_RECALL``."""


def automatic_labels(
    session: Session, run: RunRecord, experts: Collection[int]
) -> dict[int, tuple[AutomaticLabel, ...]]:
    """Return the automatic labels of those of ``experts`` that have any, the displayed one first. Labels by a language
    model take precedence over heuristic ones."""
    table = AutomaticLabelRecord
    rows_of = _stored(session, run.id, among(session, table.expert, experts))
    density = _densities(session, run.id, among(session, ExpertRecord.expert, experts))
    return {
        expert: tuple(AutomaticLabel(**_served(row, density.get(expert, 0.0))) for row in sorted(rows, key=_order))
        for expert, rows in rows_of.items()
    }


def shown_labels(session: Session, run: RunRecord, experts: Collection[int]) -> dict[int, AutomaticLabel]:
    return {expert: labels[0] for expert, labels in automatic_labels(session, run, experts).items()}


def both_labels(session: Session, run: RunRecord, experts: Collection[int]) -> dict[int, dict[str, Any]]:
    """Return the fields of ``Labelled`` of each expert."""
    own, automatic = labels_of(session, run.name, experts), shown_labels(session, run, experts)
    return {expert: {"label": own.get(expert), "automatic": automatic.get(expert)} for expert in experts}


def clear_labels(session: Session, run: RunRecord, experts: Collection[int]) -> dict[int, str]:
    """Return the automatic labels that pages use as names."""
    shown = shown_labels(session, run, experts)
    return {expert: label.label for expert, label in shown.items() if label.is_clear}


@dataclass(frozen=True)
class ShownLabels:
    """Displayed automatic labels of a run in memory, about 300 bytes each."""

    rows: Mapping[int, tuple[Any, ...]]
    """Expert -> ``FIELDS``. Labels whose accuracy has the highest lower bound come first."""
    density: Mapping[int, float] = field(default_factory=dict)

    def of(self, expert: int) -> dict[str, Any] | None:
        row = self.rows.get(expert)
        return None if row is None else _served(row, self.density.get(expert, 0.0))

    @cached_property
    def best_first(self) -> Sequence[int]:
        """Experts with a clear label, best labels first."""
        return [expert for expert, row in self.rows.items() if _served(row, self.density.get(expert, 0.0))["is_clear"]]

    @cached_property
    def naming(self) -> Mapping[str, Sequence[tuple[int, float]]]:
        """Word in lower case -> experts whose precise label names it, and its share of the label's words. A low recall
        does not matter here. Of rule-based labels, only the quoted words count."""
        naming: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        for expert, (label, labeller, _, precision, recall, *_) in self.rows.items():
            if recall == 0 or (precision is not None and precision < MIN_PRECISION):
                continue
            if labeller == FEATURES:
                label = " ".join(QUOTED.findall(label))
            words = set(re.findall(r"\w+", label.casefold())) - FUNCTION_WORDS
            for word in words:
                naming[word].append((expert, 1 / len(words)))
        return naming

    @cached_property
    def like(self) -> Callable[[str], list[int]]:
        """Function that returns the experts whose label contains a text, without weak labels.

        Labels that have the text as whole words come first: “we” before “well”. Those with a word that begins with it
        come next. Among both, those at the beginning come first: “Numbers after …” before “, after numbers”. Then the
        best ones. ``is_inside_word`` leaves out the others: “stranger” for “anger”.
        """
        searched = {expert: self.rows[expert] for expert in self.best_first}
        # One text with a line per label is searched in a single pass in C.
        lines = [row[0].replace("\n", " ").casefold() for row in searched.values()]
        whole, experts = "\n".join(lines), list(searched)
        starts = [0, *accumulate(len(line) + 1 for line in lines)]

        @lru_cache(MAX_SEARCHES)
        def matching_experts(folded: str) -> list[int]:
            ranked: list[list[int]] = [[] for _ in range(4)]
            at = whole.find(folded)
            while at >= 0:
                line = bisect_right(starts, at) - 1
                before = whole[starts[line] : at]
                if is_inside_word(before[-1:], folded):
                    at = whole.find(folded, at + 1)
                    continue
                is_prefix = whole[at + len(folded) : at + len(folded) + 1].isalnum()
                is_later = before.rsplit(": ", 1)[-1].strip(QUOTES) != ""
                ranked[2 * is_prefix + is_later].append(experts[line])
                at = whole.find(folded, starts[line + 1])
            return list(chain.from_iterable(ranked))

        return lambda text: matching_experts(text.replace("\n", " ").casefold())


def is_inside_word(before: str, typed: str) -> bool:
    """Return whether a text that follows ``before`` begins inside a word; never in scripts without upper case."""
    return before.isalnum() and typed[:1].upper() != typed[:1].lower()


def load_shown_labels(session: Session, run_id: int) -> ShownLabels:
    """Load the displayed automatic labels, with the precedence of ``automatic_labels``. They are in the order of the
    lower end of their accuracy's interval, so that few examples do not rank first."""
    best = {expert: min(rows, key=_order) for expert, rows in _stored(session, run_id).items()}
    density = _densities(session, run_id)
    lowest = {}
    for expert, row in best.items():
        label = _served(row, density.get(expert, 0.0))
        interval = accuracy_interval(label, density.get(expert, 0.0))
        lowest[expert] = (label["balanced_accuracy"] or 0.0) if interval is None else interval[0]
    order = sorted(best, key=lambda expert: (-lowest[expert], expert))
    return ShownLabels({expert: best[expert] for expert in order}, density)


def _stored(session: Session, run_id: int, *conditions: ColumnElement[bool]) -> dict[int, list[tuple[Any, ...]]]:
    table = AutomaticLabelRecord
    query = select(table.expert, *(getattr(table, name) for name in FIELDS)).where(table.run_id == run_id, *conditions)
    rows_of: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for expert, *fields in session.execute(query):
        rows_of[expert].append(tuple(fields))
    return rows_of


def _densities(session: Session, run_id: int, *conditions: ColumnElement[bool]) -> dict[int, float]:
    query = select(ExpertRecord.expert, ExpertRecord.density).where(ExpertRecord.run_id == run_id, *conditions)
    return dict(session.execute(query).all())


def accuracy_interval(automatic: Mapping[str, Any] | None, density: float) -> tuple[float, float] | None:
    """Return the interval of a rule-based label's balanced accuracy; None for other labels.

    It is the mean of the share of matching examples and the share of non-matching inactive tokens. There are few
    examples and thousands of inactive tokens, so only the former share has an interval. Neither share is stored: the
    false positive rate follows from precision and recall, and the number of matching examples is an integer.
    """
    if automatic is None or automatic["labeller"] != FEATURES or automatic["balanced_accuracy"] is None:
        return None
    examples, excess = automatic["test_examples"], 2 * automatic["balanced_accuracy"] - 1
    false_positive_rate, precision, recall = 0.0, automatic["precision"], automatic["recall"]
    if precision and recall and density < 1:  # else it matches hardly any inactive token
        false_positive_rate = min(recall * density / (1 - density) * (1 / precision - 1), 1.0)
    matching = min(max(round(examples * (excess + false_positive_rate)), 0), examples)
    true_negative_rate = 1 + excess - matching / examples
    low, high = wilson_interval(matching / examples, examples)
    return (low + true_negative_rate) / 2, (high + true_negative_rate) / 2


def _served(row: Sequence[Any], density: float) -> dict[str, Any]:
    """Return ``FIELDS`` as ``AutomaticLabel``, with its score and weaknesses. Imported labels have no test examples,
    so no score was measured. A label without a match in the sample has no precision, and a recall of 0."""
    label = dict(zip(FIELDS, row, strict=True))
    if not label["test_examples"]:
        label["balanced_accuracy"] = None
    accuracy, precision, recall = label["balanced_accuracy"], label["precision"], label["recall"]
    is_low = {
        f"balanced accuracy below {MIN_ACCURACY}": accuracy is not None and accuracy < MIN_ACCURACY,
        f"precision below {MIN_PRECISION:.0%}": precision is not None and precision < MIN_PRECISION,
        f"recall below {MIN_RECALL:.0%}": recall is not None
        and recall < MIN_RECALL
        and (recall > 0 or density >= MIN_DENSITY),
    }
    weaknesses = [weakness.replace("%", " %") for weakness, is_present in is_low.items() if is_present]
    score = None if precision is None or not recall else 2 * precision * recall / (precision + recall)
    if recall == 0 and weaknesses:  # without a weakness, the sample holds too few tokens of a rare expert
        score = 0.0
    return label | {"f1": score, "is_clear": not weaknesses, "weaknesses": weaknesses}


def _order(row: Sequence[Any]) -> tuple[bool, float]:
    _, labeller, balanced_accuracy, *_ = row
    return labeller == FEATURES, -balanced_accuracy


def shown_labels_stamp(session: Session, run_id: int) -> Hashable:
    """Return a value that changes with the run's automatic labels."""
    table = AutomaticLabelRecord
    query = select(func.count(), func.max(table.created_at)).where(table.run_id == run_id)
    return tuple(session.execute(query).one())
