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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from mxd.trainer.analysis.labelling.token_features import FEATURES, Vocabulary

MAX_VALUES = {"token": 4, "word": 4, "before": 3, "before_two": 3, "ending": 2, "language": 2, "inside": 1, "start": 2}
DEFAULT_MAX_VALUES = 2
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
    """Text sample with known activity of every expert, sorted by each feature for fast lookups."""

    def __init__(self, features_FT: Features, tokens_B: Indices) -> None:
        self.features_FT = features_FT
        self.tokens_B = tokens_B
        values_FB = features_FT[:, tokens_B]
        self._order_FB = np.argsort(values_FB, axis=1, kind="stable")
        self._sorted_FB = np.take_along_axis(values_FB, self._order_FB, axis=1)

    def counts(self, feature: int, values: Values) -> Indices:
        """Number of tokens with each of ``values`` in a feature."""
        row = self._sorted_FB[feature]
        return _count_in_sorted(row, values)

    def matching(self, rule: Rule) -> Indices:
        """Tokens that match a rule."""
        first, *rest = rule
        row, order = self._sorted_FB[first.feature], self._order_FB[first.feature]
        slices = [np.searchsorted(row, [value, value + 1]) for value in first.values]
        tokens: Indices = self.tokens_B[np.concatenate([order[start:end] for start, end in slices])]
        matching: Indices = tokens[matches(self.features_FT, tuple(rest), tokens)]
        return matching


def matches(features_FT: Features, rule: Rule, tokens: Indices) -> NDArray[np.bool_]:
    """Test which tokens match a rule. Returns a mask over ``tokens``."""
    tests = (_has_value(features_FT[condition.feature, tokens], condition.values) for condition in rule)
    return reduce(np.logical_and, tests, np.ones(len(tokens), np.bool_))


def _has_value(feature_T: Values, values: Sequence[int]) -> NDArray[np.bool_]:
    """Mask over tokens; a condition has so few values that comparing with each is faster than ``np.isin``."""
    return reduce(np.logical_or, (feature_T == value for value in values))


class RuleSearch:
    """Beam search for the rule of one expert."""

    def __init__(self, background: BackgroundTokens, positives_P: Indices, active: Indices, density: float) -> None:
        """Set up the search.

        Args:
            background: tokens on which the expert's activity is known.
            positives_P: tokens of the expert's examples.
            active: background tokens on which the expert is active. They do not count as false positives.
            density: share of all tokens on which the expert is active.
        """
        self.background = background
        self.features_FT = background.features_FT
        self.positives_P = positives_P
        self.active = active
        self.density = density
        self.num_inactive = len(background.tokens_B) - len(active)

    def best(self) -> RuleCandidate | None:
        """Return the best rule, or None if no rule matches."""
        beam = [RuleCandidate((), self.positives_P, None, 1.0, 0.0)]
        best = None
        for _ in range(MAX_CONDITIONS):
            extended = [extended for candidate in beam for extended in self._extend(candidate)]
            beam = sorted(extended, key=lambda candidate: -candidate.objective)[:BEAM]
            if not beam or (best is not None and beam[0].objective <= best.objective):
                break
            best = beam[0]
        return best

    def _extend(self, candidate: RuleCandidate) -> list[RuleCandidate]:
        used = {condition.feature for condition in candidate.rule}
        chosen = [
            (objective, Condition(feature, values))
            for feature in range(len(FEATURES))
            if feature not in used
            for objective, values in [self._best_values(candidate, feature)]
            if objective > candidate.objective
        ]
        # Matching tokens are listed only for the best conditions.
        chosen = sorted(chosen, key=lambda pair: -pair[0])[:BEAM]
        return [self._add_condition(candidate, condition, objective) for objective, condition in chosen]

    def _add_condition(self, candidate: RuleCandidate, condition: Condition, objective: float) -> RuleCandidate:
        positives_P = candidate.positives_P[matches(self.features_FT, (condition,), candidate.positives_P)]
        if candidate.negatives_B is None:
            negatives = self.background.matching((condition,))
            negatives = negatives[~np.isin(negatives, self.active)]
        else:
            negatives = candidate.negatives_B[matches(self.features_FT, (condition,), candidate.negatives_B)]
        step = 1 + len(negatives) // MAX_NEGATIVES
        rule, weight = (*candidate.rule, condition), candidate.weight * step
        return RuleCandidate(rule, positives_P, negatives[::step], weight, objective)

    def _best_values(self, candidate: RuleCandidate, feature: int) -> tuple[float, tuple[int, ...]]:
        """Return the objective with one more condition on a feature, and the condition's values."""
        values, true_positives = _distinct(self.features_FT[feature, candidate.positives_P])
        # A value that occurs only once is no evidence.
        is_frequent = (values > 0) & (true_positives >= max(2, 0.04 * len(self.positives_P)))
        values, true_positives = values[is_frequent], true_positives[is_frequent]
        if not len(values):
            return 0.0, ()
        false_positives = candidate.weight * self._false_positives(candidate, feature, values)
        true_positives = true_positives - 1
        max_values = MAX_VALUES.get(FEATURES[feature], DEFAULT_MAX_VALUES)
        order = np.argsort(-true_positives / (false_positives + 0.5), kind="stable")[:max_values]
        objectives = self._objectives(true_positives[order].cumsum(), false_positives[order].cumsum())
        objectives -= VALUE_PENALTY * np.arange(len(order)) + CONDITION_PENALTY * len(candidate.rule)
        best = int(objectives.argmax())
        return float(objectives[best]), tuple(values[order[: best + 1]].tolist())

    def _false_positives(self, candidate: RuleCandidate, feature: int, values: Values) -> Indices:
        if candidate.negatives_B is None:
            return self.background.counts(feature, values) - _count_values(
                self.features_FT[feature, self.active], values
            )
        return _count_values(self.features_FT[feature, candidate.negatives_B], values)

    def _objectives(self, true_positives: Indices, false_positives: NDArray[np.float64]) -> NDArray[np.float64]:
        recall = true_positives / len(self.positives_P)
        false_positive_rate = (false_positives + 0.5) / (self.num_inactive + 1)
        matching_active, matching_inactive = recall * self.density, false_positive_rate * (1 - self.density)
        precision = matching_active / (matching_active + matching_inactive)
        return np.asarray(2 * precision * recall / (precision + recall))


def _distinct(feature_T: Values) -> tuple[Values, Indices]:
    """Distinct values, ascending, and their counts, as ``np.unique``, which takes twice as long for short arrays."""
    row = np.sort(feature_T)
    is_first = np.ones(len(row), np.bool_)
    np.not_equal(row[1:], row[:-1], out=is_first[1:])
    starts = np.flatnonzero(is_first)
    return row[starts], np.diff(starts, append=len(row))


def _count_values(feature_T: Values, values: Values) -> Indices:
    counts: Indices = np.bincount(feature_T, minlength=int(values[-1]) + 1)[values]
    return counts


def _count_in_sorted(row: Values, values: Values) -> Indices:
    counts: Indices = np.searchsorted(row, values, side="right") - np.searchsorted(row, values, side="left")
    return counts


_BREAKS = str.maketrans({"\n": "↵", "\t": "⇥", "\r": ""})


def describe_rule(rule: Rule, vocabularies: Mapping[str, Vocabulary]) -> str:
    """Describe a rule in English."""
    texts = {one.name: [vocabularies[one.name].texts[value] for value in one.values] for one in rule}
    language = texts.pop("language", [])
    text = " ".join(part for part in (_subject(texts), _surroundings(texts)) if part)
    if not text:
        return _either(language) if language else ""
    text = text if text[0] in "“‘" else text[0].upper() + text[1:]
    return f"{_either(language)}: {text}" if language else text


def _subject(texts: Mapping[str, Sequence[str]]) -> str:
    tokens, words = texts.get("token"), texts.get("word")
    kind, ending = texts.get("kind"), texts.get("ending")
    if tokens and words:
        same = {token.strip().lower() for token in tokens} == set(words)
        return _quoted(tokens) if same else f"the {_quoted(tokens)} of {_quoted(words)}"
    if tokens:
        is_part = kind is not None and all("word" in value and value != "words" for value in kind)
        return f"{_quoted(tokens)}, {_either(kind)}" if is_part and kind else _quoted(tokens)
    if words:
        return f"{_either(kind)} of {_quoted(words)}" if kind and kind != ["words"] else _quoted(words)
    if ending:
        return f"{_either(kind) if kind else 'words'} in {_either([f'“-{value}”' for value in ending])}"
    return _either(kind) if kind else ""


def _surroundings(texts: Mapping[str, Sequence[str]]) -> str:
    phrases: dict[str, Callable[[Sequence[str]], str]] = {
        "before": lambda values: f"after {_quoted(values)}",
        "before_two": lambda values: f"after {_quoted(values)}",
        "kind_before": lambda values: f"after {_either(values)}",
        "start": lambda values: f"at {_either(values)}",
        "inside": lambda values: f"inside {_either(values)}",
    }
    parts = [phrase(texts[name]) for name, phrase in phrases.items() if name in texts]
    # The longer of two statements about the preceding tokens implies the shorter one.
    if "before" in texts and "before_two" in texts:
        parts.pop(0)
    return " ".join(parts)


def _quoted(texts: Sequence[str]) -> str:
    printable = [text.strip(" ").translate(_BREAKS) or "␣" * min(len(text), 4) for text in texts]
    return _either([f"“{text}”" for text in dict.fromkeys(printable)])


def _either(texts: Sequence[str] | None) -> str:
    texts = texts or []
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"
