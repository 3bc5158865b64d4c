"""The shortest rule that tells an expert's tokens from all others.

A rule is a few conditions, each on one column: the token's number there is one of a few. Rules are grown greedily: for
one column, numbers are taken in the order of how much more often they stand at the expert's tokens than elsewhere, as
many as raise the objective; then another column is added, if that raises it further.

The objective is the harmonic mean of recall on the expert's contexts and of the precision that follows from recall,
the share of other tokens that fit, and the expert's usage (Bayes), less a little for each condition and number. A
number counts one context less than it catches: the one that brought it up proves nothing.

Shapes: C columns, T tokens, P the expert's tokens, B other tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from trainer.labelling.features import COLUMNS

MOST_VALUES = {"token": 4, "word": 4, "before": 3, "before_two": 3, "ending": 2, "language": 2, "inside": 1, "start": 2}
OTHERWISE = 2
MOST_CONDITIONS = 3
BEAM = 2
PRICE_OF_CONDITION = 0.03
PRICE_OF_VALUE = 0.02
MOST_OTHERS = 12_000
"""Other tokens that fit a rule and are looked at one by one; of more, every n-th."""

Places = NDArray[np.int64]
Columns = NDArray[np.int32]


@dataclass(frozen=True)
class Condition:
    """The token's number in a column is one of ``values``."""

    column: int
    values: tuple[int, ...]

    @property
    def name(self) -> str:
        """Name of the column."""
        return COLUMNS[self.column]


Rule = tuple[Condition, ...]


@dataclass(frozen=True)
class Grown:
    """A rule with what it catches, and its objective."""

    rule: Rule
    positives_P: Places
    others_B: Places | None
    """None for the empty rule, which fits all."""
    weight: float
    """Tokens that each of ``others_B`` stands for."""
    objective: float


class Background:
    """A sample of text in which it is known where every expert is active."""

    def __init__(self, columns_CT: Columns, places_B: Places) -> None:
        self.columns_CT = columns_CT
        self.places_B = places_B
        values_CB = columns_CT[:, places_B]
        self._order_CB = np.argsort(values_CB, axis=1, kind="stable")
        self._sorted_CB = np.take_along_axis(values_CB, self._order_CB, axis=1)

    def counts(self, column: int, values: Places) -> Places:
        """How often each of ``values`` stands in a column."""
        row = self._sorted_CB[column]
        return _between(row, values)

    def matching(self, rule: Rule) -> Places:
        """Places of the tokens that fit a rule."""
        first, *rest = rule
        row, order = self._sorted_CB[first.column], self._order_CB[first.column]
        slices = [np.searchsorted(row, [value, value + 1]) for value in first.values]
        places: Places = self.places_B[np.concatenate([order[start:end] for start, end in slices])]
        kept: Places = places[fits(self.columns_CT, tuple(rest), places)]
        return kept


def fits(columns_CT: Columns, rule: Rule, places: Places) -> NDArray[np.bool_]:
    """Which of some tokens fit a rule."""
    tests = (np.isin(columns_CT[condition.column, places], condition.values) for condition in rule)
    return reduce(np.logical_and, tests, np.ones(len(places), np.bool_))


class Search:
    """The search for one expert's rule."""

    def __init__(self, background: Background, positives_P: Places, active: Places, usage: float) -> None:
        """``active`` are places of the background on which the expert is active: they are not held against a rule."""
        self.background = background
        self.columns_CT = background.columns_CT
        self.positives_P = positives_P
        self.active = active
        self.usage = usage
        self.silent = len(background.places_B) - len(active)

    def best(self) -> Grown | None:
        """The best rule, None where there is none."""
        beam = [Grown((), self.positives_P, None, 1.0, 0.0)]
        best = None
        for _ in range(MOST_CONDITIONS):
            grown = [candidate for one in beam for candidate in self._grown(one)]
            beam = sorted(grown, key=lambda candidate: -candidate.objective)[:BEAM]
            if not beam or (best is not None and beam[0].objective <= best.objective):
                break
            best = beam[0]
        return best

    def _grown(self, one: Grown) -> list[Grown]:
        used = {condition.column for condition in one.rule}
        chosen = [
            (objective, Condition(column, values))
            for column in range(len(COLUMNS))
            if column not in used
            for objective, values in [self._chosen(one, column)]
            if objective > one.objective
        ]
        # Only the most promising are worth the lists of what they catch.
        chosen = sorted(chosen, key=lambda pair: -pair[0])[:BEAM]
        return [self._with(one, condition, objective) for objective, condition in chosen]

    def _with(self, one: Grown, condition: Condition, objective: float) -> Grown:
        kept = one.positives_P[fits(self.columns_CT, (condition,), one.positives_P)]
        if one.others_B is None:
            others = self.background.matching((condition,))
            others = others[~np.isin(others, self.active)]
        else:
            others = one.others_B[fits(self.columns_CT, (condition,), one.others_B)]
        step = 1 + len(others) // MOST_OTHERS
        return Grown((*one.rule, condition), kept, others[::step], one.weight * step, objective)

    def _chosen(self, one: Grown, column: int) -> tuple[float, tuple[int, ...]]:
        """The best values of one more column, and the objective with them."""
        values, hits = np.unique(self.columns_CT[column, one.positives_P], return_counts=True)
        # What stands at one context alone is an accident.
        kept = (values > 0) & (hits >= max(2, 0.04 * len(self.positives_P)))
        values, hits = values[kept], hits[kept]
        if not len(values):
            return 0.0, ()
        misses = one.weight * self._misses(one, column, values)
        hits = hits - 1
        order = np.argsort(-hits / (misses + 0.5), kind="stable")[: MOST_VALUES.get(COLUMNS[column], OTHERWISE)]
        objectives = self._objectives(hits[order].cumsum(), misses[order].cumsum())
        objectives -= PRICE_OF_VALUE * np.arange(len(order)) + PRICE_OF_CONDITION * len(one.rule)
        best = int(objectives.argmax())
        return float(objectives[best]), tuple(values[order[: best + 1]].tolist())

    def _misses(self, one: Grown, column: int, values: Places) -> Places:
        if one.others_B is None:
            return self.background.counts(column, values) - _counts(self.columns_CT[column, self.active], values)
        return _counts(self.columns_CT[column, one.others_B], values)

    def _objectives(self, hits: Places, misses: NDArray[np.float64]) -> NDArray[np.float64]:
        recall = hits / len(self.positives_P)
        found = recall * self.usage
        precision = found / (found + (misses + 0.5) / (self.silent + 1) * (1 - self.usage))
        return np.asarray(2 * precision * recall / (precision + recall))


def _counts(found: NDArray[np.int32], values: Places) -> Places:
    return _between(np.sort(found), values)


def _between(row: NDArray[np.int32], values: Places) -> Places:
    counts: Places = np.searchsorted(row, values, side="right") - np.searchsorted(row, values, side="left")
    return counts
