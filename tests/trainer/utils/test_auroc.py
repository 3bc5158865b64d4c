"""AUROC by definition, and its interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from mxd.trainer.utils.bootstrap import auroc_interval, aurocs

VALUES = st.lists(st.integers(0, 4), min_size=1, max_size=12)


@given(VALUES, VALUES)
def test_it_equals_that_of_scikit_learn(positive: list[int], negative: list[int]) -> None:
    expected = roc_auc_score([1] * len(positive) + [0] * len(negative), positive + negative)
    assert aurocs(np.array(positive)[:, None], np.array(negative)[:, None]) == pytest.approx(expected)
    interval = auroc_interval(np.array(positive), np.array(negative))
    assert interval.value == pytest.approx(expected)
    assert 0 <= interval.low <= interval.high <= 1


def test_each_feature_has_its_own() -> None:
    positive_PF = np.array([[1.0, 0.0, 2.0], [3.0, 0.0, 0.0]], np.float32)
    negative_QF = np.array([[0.0, 0.0, 1.0], [2.0, 0.0, 3.0]], np.float32)
    assert aurocs(positive_PF, negative_QF).tolist() == [0.75, 0.5, 0.25]


def test_the_interval_shrinks_with_more_examples() -> None:
    generator = np.random.default_rng(0)
    widths = []
    for size in (10, 200):
        interval = auroc_interval(generator.normal(1, 1, size), generator.normal(0, 1, size))
        widths.append(interval.high - interval.low)
    assert widths[1] < widths[0] / 2
