"""Sparse probing (section 4.2 of the MxD paper, after Gurnee et al., arXiv 2305.01610), with a validation split.

For each class against all others: the experts with the largest difference of class means on the training texts are
tried one by one, each by a logistic regression on its coefficient alone; the one with the best F1 on the validation
texts is scored once on the test texts. The paper's code chooses on the test texts, which flatters. With K = 5 the five
best on the validation texts are fitted together.

Shapes: E examples, N columns, C candidates.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score

from trainer.probing.config import ProbeConfig
from trainer.probing.examples import Columns, Examples

Mask = npt.NDArray[np.bool_]
TRAIN, VALIDATION = 0.6, 0.2
AT_ONCE = 5
BINS = 40
RESAMPLES = 500


@dataclass(frozen=True)
class Score:
    """On the test examples."""

    experts: tuple[int, ...]
    f1: float
    f1_low: float
    f1_high: float
    """95 % bootstrap interval over test examples."""
    balanced_accuracy: float
    roc_auc: float


@dataclass(frozen=True)
class ClassResult:
    """One class against all others."""

    examples: int
    expert: int
    f1: float
    balanced_accuracy: float
    roc_auc: float
    one: Score
    five: Score
    edges: tuple[float, ...]
    inside: tuple[int, ...]
    """Test examples of the class by the coefficient of the one expert, between the edges …"""
    outside: tuple[int, ...]
    """… and those of the other classes."""


@dataclass(frozen=True)
class KindResult:
    """Every class, by one kind of column."""

    classes: dict[str, ClassResult]
    mean_f1: float
    mean_f1_of_five: float


@dataclass(frozen=True)
class Split:
    """Which examples are for what."""

    train_E: Mask
    validation_E: Mask
    test_E: Mask


def split_of(text_E: npt.NDArray[np.int64], seed: int) -> Split:
    """Texts at random, all examples of a text together."""
    texts = np.unique(text_E)
    chance = dict(zip(texts.tolist(), np.random.default_rng(seed).random(len(texts)).tolist(), strict=True))
    chance_E = np.array([chance[text] for text in text_E.tolist()])
    return Split(
        chance_E < TRAIN, (chance_E >= TRAIN) & (chance_E < TRAIN + VALIDATION), chance_E >= TRAIN + VALIDATION
    )


def probe_examples(examples: Examples, config: ProbeConfig) -> dict[str, KindResult]:
    """Every class by every kind of column."""
    split = split_of(examples.text_E, config.seed)
    return {kind: _kind(columns, examples, split, config) for kind, columns in examples.columns.items()}


def _kind(columns_EN: Columns, examples: Examples, split: Split, config: ProbeConfig) -> KindResult:
    classes = {
        str(label): _class(columns_EN, examples.labels_E == label, split, config)
        for label in np.unique(examples.labels_E)
    }
    return KindResult(
        classes=classes,
        mean_f1=float(np.mean([found.one.f1 for found in classes.values()])),
        mean_f1_of_five=float(np.mean([found.five.f1 for found in classes.values()])),
    )


def _class(columns_EN: Columns, inside_E: Mask, split: Split, config: ProbeConfig) -> ClassResult:
    candidates = candidates_of(columns_EN, inside_E, split.train_E, config.candidates)
    by_validation = sorted(
        candidates, key=lambda column: -_f1(columns_EN, inside_E, [column], split.train_E, split.validation_E)
    )
    one = _score(columns_EN, inside_E, by_validation[:1], split, config.seed)
    five = _score(columns_EN, inside_E, by_validation[:AT_ONCE], split, config.seed)
    values = columns_EN[split.test_E, one.experts[0]]
    edges = np.linspace(min(0.0, float(values.min())), float(values.max()) or 1.0, BINS + 1)
    return ClassResult(
        examples=int(inside_E.sum()),
        expert=one.experts[0],
        f1=one.f1,
        balanced_accuracy=one.balanced_accuracy,
        roc_auc=one.roc_auc,
        one=one,
        five=five,
        edges=tuple(edges.tolist()),
        inside=tuple(np.histogram(values[inside_E[split.test_E]], edges)[0].tolist()),
        outside=tuple(np.histogram(values[~inside_E[split.test_E]], edges)[0].tolist()),
    )


def candidates_of(columns_EN: Columns, inside_E: Mask, train_E: Mask, count: int) -> list[int]:
    """Columns with the largest difference of class means on the training examples, largest first."""
    means = [columns_EN[train_E & chosen].mean(0) for chosen in (inside_E, ~inside_E)]
    order: list[int] = np.argsort(-np.abs(means[0] - means[1]), kind="stable")[:count].tolist()
    return order


def _fit(columns_EN: Columns, inside_E: Mask, columns: Sequence[int], train_E: Mask) -> tuple[Any, npt.NDArray[Any]]:
    """A regression, and the scale that its columns are divided by: coefficients have no natural unit."""
    rows = columns_EN[:, list(columns)]
    scale = rows[train_E].std(0) + np.float32(1e-12)
    regression = LogisticRegression(class_weight="balanced", max_iter=200)
    with warnings.catch_warnings():
        # A column that parts the classes altogether has no finite optimum; where it stops is good enough.
        warnings.simplefilter("ignore", ConvergenceWarning)
        regression.fit(rows[train_E] / scale, inside_E[train_E])
    return regression, scale


def _f1(columns_EN: Columns, inside_E: Mask, columns: Sequence[int], train_E: Mask, on_E: Mask) -> float:
    regression, scale = _fit(columns_EN, inside_E, columns, train_E)
    predicted = regression.predict(columns_EN[on_E][:, list(columns)] / scale)
    return float(f1_score(inside_E[on_E], predicted, zero_division=0.0))


def _score(columns_EN: Columns, inside_E: Mask, columns: Sequence[int], split: Split, seed: int) -> Score:
    regression, scale = _fit(columns_EN, inside_E, columns, split.train_E)
    rows = columns_EN[split.test_E][:, list(columns)] / scale
    wanted, predicted = inside_E[split.test_E], regression.predict(rows)
    low, high = _f1_interval(wanted, predicted, seed)
    both = wanted.any() and not wanted.all()
    return Score(
        experts=tuple(columns),
        f1=float(f1_score(wanted, predicted, zero_division=0.0)),
        f1_low=low,
        f1_high=high,
        balanced_accuracy=float(balanced_accuracy_score(wanted, predicted)) if both else float("nan"),
        roc_auc=float(roc_auc_score(wanted, regression.decision_function(rows))) if both else float("nan"),
    )


def _f1_interval(wanted_E: Mask, predicted_E: Mask, seed: int) -> tuple[float, float]:
    chosen_BE = np.random.default_rng(seed).integers(len(wanted_E), size=(RESAMPLES, len(wanted_E)))
    wanted, predicted = wanted_E[chosen_BE], predicted_E[chosen_BE]
    hits = (wanted & predicted).sum(1)
    f1_B = 2 * hits / np.maximum(wanted.sum(1) + predicted.sum(1), 1)
    low, high = np.percentile(f1_B, (2.5, 97.5))
    return float(low), float(high)
