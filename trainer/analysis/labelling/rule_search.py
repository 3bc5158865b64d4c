"""Search for a short rule that separates an expert's active tokens from all negatives.

A rule is a conjunction of a few conditions. A condition requires one feature of the token to have one of a few values.
The search is a greedy beam search. For each feature, it adds values by descending ratio of their frequencies among the
expert's tokens and among other tokens, while the objective rises. It then adds conditions on other features likewise.

The objective is the F1 score less a small penalty per condition and value. Recall is measured on the expert's examples.
Precision follows by Bayes' theorem from recall, the false positive rate and the expert's density. The first example
with a value does not count towards its recall, because one occurrence is no evidence.

Shapes: F features, T tokens, P tokens of the expert, B background tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mxd.trainer.analysis.labelling.token_features import FEATURES

MAX_VALUES = {"token": 4, "word": 4, "before": 3, "before_two": 3, "ending": 2, "language": 2, "inside": 1, "start": 2}
DEFAULT_MAX_VALUES = 2
MAX_VALUES_F = np.array([MAX_VALUES.get(name, DEFAULT_MAX_VALUES) for name in FEATURES])
MAX_CONDITIONS = 3
BEAM = 2
CONDITION_PENALTY = 0.03
VALUE_PENALTY = 0.02
MAX_NEGATIVES = 12_000
"""Maximum number of matching inactive tokens checked per rule. Of more, every n-th is checked."""
Indices = NDArray[np.int64]
Features = NDArray[np.int32]
Values = NDArray[np.int32]


@dataclass(frozen=True)
class Condition:
    """Requirement that a token's feature has one of ``values``."""

    feature: int
    """Index of the feature in ``FEATURES``."""
    values: tuple[int, ...]
    """Value ids in the feature's vocabulary."""

    @property
    def name(self) -> str:
        """Name of the feature."""
        return FEATURES[self.feature]


Rule = tuple[Condition, ...]


@dataclass(frozen=True)
class ActiveTokens:
    """Tokens of one expert that a rule is searched for."""

    positives_P: Indices
    """Tokens of the expert's examples."""
    active: Indices
    """Background tokens on which the expert is active. They do not count as false positives."""
    density: float
    """Share of all tokens on which the expert is active."""


@dataclass(frozen=True)
class RuleCandidate:
    """A rule with the tokens that it matches, and its objective."""

    rule: Rule
    positives_P: Indices
    """Matching tokens of the expert's examples."""
    negatives_B: Indices | None
    """Matching inactive tokens; None for the empty rule, which matches all."""
    weight: float
    """Number of inactive tokens that each entry of ``negatives_B`` represents."""
    objective: float


class BackgroundTokens:
    """Text sample with known activity of every expert, sorted by each feature for fast lookups.

    A code stands for one value of one feature; the codes of a feature follow those of the feature before it.
    """

    def __init__(self, features_FT: Features, tokens_B: Indices) -> None:
        self.features_FT = features_FT
        self.tokens_B = tokens_B
        self._order_FB = np.argsort(features_FT[:, tokens_B], axis=1, kind="stable")
        sizes_F = features_FT.max(axis=1, initial=0).astype(np.int64) + 1
        self.first_code_F = np.cumsum(sizes_F) - sizes_F
        self.num_codes = int(sizes_F.sum())
        self.feature_of_code = np.repeat(np.arange(len(sizes_F)), sizes_F)
        self.count_of_code = self.count_codes(tokens_B)
        """Number of background tokens with each code."""
        before = np.cumsum(self.count_of_code) - self.count_of_code
        self._start_of_code = before - self.feature_of_code * len(tokens_B)

    def codes(self, tokens: Indices) -> Indices:
        """Codes of some tokens, [F, tokens]."""
        # take and an addition in place, because the searches spend most of their time here.
        codes: Indices = self.features_FT.take(tokens, axis=1).astype(np.int64)
        codes += self.first_code_F[:, None]
        return codes

    def count_codes(self, tokens: Indices) -> Indices:
        """Number of times that each code occurs among ``tokens``."""
        return np.bincount(self.codes(tokens).ravel(), minlength=self.num_codes)

    def matching(self, rule: Rule) -> Indices:
        """Tokens that match a rule."""
        first, *rest = rule
        order, codes = self._order_FB[first.feature], np.array(first.values) + self.first_code_F[first.feature]
        starts, counts = self._start_of_code[codes].tolist(), self.count_of_code[codes].tolist()
        slices = [order[start : start + count] for start, count in zip(starts, counts, strict=True)]
        tokens: Indices = self.tokens_B[np.concatenate(slices)]
        return _matching_of(self.features_FT, tuple(rest), tokens)


def matches(features_FT: Features, rule: Rule, tokens: Indices) -> NDArray[np.bool_]:
    """Test which tokens match a rule of at least one condition. Returns a mask over ``tokens``."""
    tests = (_has_value(features_FT[condition.feature, tokens], condition.values) for condition in rule)
    return reduce(np.logical_and, tests)


def _matching_of(features_FT: Features, rule: Rule, tokens: Indices) -> Indices:
    """The tokens that match a rule, which may be empty."""
    return tokens[matches(features_FT, rule, tokens)] if rule else tokens


def _has_value(feature_T: Values, values: Sequence[int]) -> NDArray[np.bool_]:
    """Mask over tokens; a condition has so few values that comparing with each is faster than ``np.isin``."""
    return reduce(np.logical_or, (feature_T == value for value in values))


def is_among(tokens: Indices, ascending: Indices) -> NDArray[np.bool_]:
    """Mask over ``tokens``: those that occur in ``ascending``, as ``np.isin``, which is slow for short arrays."""
    if not len(ascending):
        return np.zeros(len(tokens), np.bool_)
    places = np.searchsorted(ascending, tokens).clip(max=len(ascending) - 1)
    is_equal: NDArray[np.bool_] = ascending[places] == tokens
    return is_equal


def find_rules(background: BackgroundTokens, experts: Sequence[ActiveTokens]) -> list[RuleCandidate | None]:
    """Return the best rule of each expert, or None if no rule matches.

    The candidates of all experts are extended together, because they are too small for one array operation each.
    """
    searches = [_Search(background, expert) for expert in experts]
    running = searches
    for _ in range(MAX_CONDITIONS):
        extend_all(background, running)
        running = [search for search in running if search.keep_best()]
    return [search.best for search in searches]


class _Search:
    """Beam search for the rule of one expert."""

    def __init__(self, background: BackgroundTokens, expert: ActiveTokens) -> None:
        self.background = background
        self.expert = expert
        self.num_inactive = len(background.tokens_B) - len(expert.active)
        self.min_count = max(2, 0.04 * len(expert.positives_P))
        """Examples with a value that are required for a condition. One occurrence is no evidence."""
        self.beam = [RuleCandidate((), expert.positives_P, None, 1.0, 0.0)]
        self.best: RuleCandidate | None = None

    def keep_best(self) -> bool:
        """Reduce the beam to its best candidates; return whether the first of them is an improvement."""
        self.beam = sorted(self.beam, key=lambda candidate: -candidate.objective)[:BEAM]
        if not self.beam or (self.best is not None and self.beam[0].objective <= self.best.objective):
            return False
        self.best = self.beam[0]
        return True

    def false_positives(self, candidate: RuleCandidate, codes: Indices) -> NDArray[np.float64]:
        """Number of inactive tokens with each of ``codes`` among those that a candidate matches."""
        background = self.background
        if candidate.negatives_B is None:
            return np.asarray(background.count_of_code[codes] - background.count_codes(self.expert.active)[codes])
        return np.asarray(candidate.weight * background.count_codes(candidate.negatives_B)[codes])

    def add_condition(self, candidate: RuleCandidate, condition: Condition, objective: float) -> RuleCandidate:
        features_FT = self.background.features_FT
        positives_P = candidate.positives_P[matches(features_FT, (condition,), candidate.positives_P)]
        if candidate.negatives_B is None:
            negatives = self.background.matching((condition,))
            negatives = negatives[~is_among(negatives, self.expert.active)]
        else:
            negatives = candidate.negatives_B[matches(features_FT, (condition,), candidate.negatives_B)]
        step = 1 + len(negatives) // MAX_NEGATIVES
        rule, weight = (*candidate.rule, condition), candidate.weight * step
        return RuleCandidate(rule, positives_P, negatives[::step], weight, objective)


def extend_all(background: BackgroundTokens, searches: Sequence[_Search]) -> None:
    """Replace the beam of each search by its candidates with one more condition that raises the objective."""
    owners = [(search, candidate) for search in searches for candidate in search.beam]
    for search in searches:
        search.beam = []
    if not owners or not len((counts := _frequent_codes(background, owners)).code):
        return
    best = _best_values(background, owners, counts)
    taken = [0] * len(owners)
    # Matching tokens are listed only for the best conditions, and ties go to the first feature.
    for index in np.lexsort((-best.objective, best.candidate)).tolist():
        number = int(best.candidate[index])
        search, candidate = owners[number]
        if taken[number] < BEAM and best.objective[index] > candidate.objective:
            taken[number] += 1
            values = tuple(best.values[index, : best.length[index]].tolist())
            condition = Condition(int(best.feature[index]), values)
            search.beam.append(search.add_condition(candidate, condition, float(best.objective[index])))


class _CodeCounts(NamedTuple):
    """Codes that may become conditions of candidates, ascending by candidate and code, all of one length."""

    candidate: Indices
    code: Indices
    true_positives: Indices
    false_positives: NDArray[np.float64]


class _BestValues(NamedTuple):
    """The best condition on each feature of each candidate, [conditions]."""

    candidate: Indices
    feature: Indices
    objective: NDArray[np.float64]
    length: Indices
    """Number of values of the condition."""
    values: Indices
    """Value ids, [conditions, most values]; only the first ``length`` count."""


def _frequent_codes(background: BackgroundTokens, owners: Sequence[tuple[_Search, RuleCandidate]]) -> _CodeCounts:
    tokens = [candidate.positives_P for _, candidate in owners]
    candidate_P = np.repeat(np.arange(len(owners)), [len(each) for each in tokens])
    keys = candidate_P * background.num_codes + background.codes(np.concatenate(tokens))
    keys, counts = _distinct(keys.ravel())
    candidate, code = np.divmod(keys, background.num_codes)
    feature = background.feature_of_code[code]
    used = np.zeros((len(owners), len(FEATURES)), np.bool_)
    for number, (_, owner) in enumerate(owners):
        used[number, [condition.feature for condition in owner.rule]] = True
    min_counts = np.array([search.min_count for search, _ in owners])
    # Code 0 of a feature means that the feature does not apply.
    chosen = (code > background.first_code_F[feature]) & (counts >= min_counts[candidate]) & ~used[candidate, feature]
    candidate, code = candidate[chosen], code[chosen]
    false_positives = np.empty(len(code))
    edges = np.searchsorted(candidate, np.arange(len(owners) + 1)).tolist()
    for (search, owner), (start, end) in zip(owners, pairwise(edges), strict=True):
        if end > start:
            false_positives[start:end] = search.false_positives(owner, code[start:end])
    return _CodeCounts(candidate, code, counts[chosen] - 1, false_positives)


def _best_values(
    background: BackgroundTokens, owners: Sequence[tuple[_Search, RuleCandidate]], counts: _CodeCounts
) -> _BestValues:
    """Add values by descending ratio of true to false positives while the objective rises."""
    feature = background.feature_of_code[counts.code]
    group = counts.candidate * len(FEATURES) + feature
    order = np.lexsort((-counts.true_positives / (counts.false_positives + 0.5), group))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    row = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
    rank = np.arange(len(order)) - starts[row]
    is_used = rank < MAX_VALUES_F[feature[order]]
    order, row, rank = order[is_used], row[is_used], rank[is_used]
    shape = len(starts), int(MAX_VALUES_F.max())
    true_positives, false_positives, values = np.zeros(shape), np.zeros(shape), np.zeros(shape, np.int64)
    true_positives[row, rank] = counts.true_positives[order]
    false_positives[row, rank] = counts.false_positives[order]
    values[row, rank] = counts.code[order] - background.first_code_F[feature[order]]
    first = order[rank == 0]
    candidate = counts.candidate[first]
    objectives = _objectives(
        [owners[number] for number in candidate.tolist()], true_positives.cumsum(axis=1), false_positives.cumsum(axis=1)
    )
    objectives[np.arange(shape[1]) >= np.bincount(row)[:, None]] = -np.inf
    best = objectives.argmax(axis=1)
    return _BestValues(candidate, feature[first], objectives[np.arange(len(best)), best], best + 1, values)


def _objectives(
    owners: Sequence[tuple[_Search, RuleCandidate]],
    true_positives: NDArray[np.float64],
    false_positives: NDArray[np.float64],
) -> NDArray[np.float64]:
    columns = [
        (len(search.expert.positives_P), search.num_inactive, search.expert.density, len(owner.rule))
        for search, owner in owners
    ]
    positives, inactive, density, conditions = (column[:, None] for column in np.array(columns).T)
    recall = true_positives / positives
    false_positive_rate = (false_positives + 0.5) / (inactive + 1)
    matching_active, matching_inactive = recall * density, false_positive_rate * (1 - density)
    precision = matching_active / (matching_active + matching_inactive)
    objectives = 2 * precision * recall / (precision + recall)
    penalties = VALUE_PENALTY * np.arange(true_positives.shape[1]) + CONDITION_PENALTY * conditions
    return np.asarray(objectives - penalties)


def _distinct(values: Indices) -> tuple[Indices, Indices]:
    """Distinct values, ascending, and their counts, as ``np.unique``, which takes twice as long for short arrays."""
    row = np.sort(values)
    starts = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]])[: len(row)])
    return row[starts], np.diff(starts, append=len(row))
