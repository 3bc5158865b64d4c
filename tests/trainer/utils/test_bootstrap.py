"""Intervals: position and width, AUROC by definition, Wilson's interval."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from mxd.trainer.utils.bootstrap import Bootstrap, auroc_interval, aurocs, wilson_interval

VALUES_S = np.random.default_rng(0).normal(3.0, 1.0, size=200)


def test_the_interval_has_the_theoretical_width() -> None:
    interval = Bootstrap(200, 2000, seed=1).mean(VALUES_S)
    assert interval.value == pytest.approx(VALUES_S.mean())
    assert interval.low < interval.value < interval.high
    theory = 2 * 1.96 * VALUES_S.std() / np.sqrt(200)
    assert interval.high - interval.low == pytest.approx(theory, rel=0.1)


def test_a_ratio_is_paired_and_to_zero_it_is_nan() -> None:
    bootstrap = Bootstrap(200, 500, seed=0)
    paired, to_zero = bootstrap.ratio(2 * VALUES_S, VALUES_S), bootstrap.ratio(VALUES_S, 0 * VALUES_S)
    assert (paired.value, paired.low, paired.high) == pytest.approx((2, 2, 2))
    assert not np.isfinite([to_zero.value, to_zero.low, to_zero.high]).any()


def test_differing_seeds_widen_the_interval() -> None:
    bootstrap = Bootstrap(200, 1000, seed=0)
    same = bootstrap.mean_over_seeds([VALUES_S, VALUES_S])
    apart = bootstrap.mean_over_seeds([VALUES_S - 1, VALUES_S + 1])
    assert same.value == pytest.approx(apart.value)
    assert apart.high - apart.low > 3 * (same.high - same.low)


def test_cosines_of_equal_values_are_1_and_of_silence_0() -> None:
    squares_SE = np.array([[1.0, 4.0], [9.0, 0.0], [4.0, 1.0]])
    bootstrap = Bootstrap(3, 200, 0)
    low_E, high_E = bootstrap.cosines(squares_SE, squares_SE, squares_SE)
    assert low_E[0] == pytest.approx(1) == high_E[0]
    zeros_SE = np.zeros_like(squares_SE)
    assert (bootstrap.cosines(zeros_SE, squares_SE, zeros_SE)[1] == 0).all()


VALUES = st.lists(st.integers(0, 4), min_size=1, max_size=12)


@given(VALUES, VALUES)
def test_each_features_auroc_is_that_of_scikit_learn(positive: list[int], negative: list[int]) -> None:
    expected = roc_auc_score([1] * len(positive) + [0] * len(negative), positive + negative)
    both = (np.outer(values, [1, -1]) for values in (positive, negative))  # a feature and its opposite
    assert aurocs(*both).tolist() == pytest.approx([expected, 1 - expected])
    interval = auroc_interval(np.array(positive), np.array(negative))
    assert interval.value == pytest.approx(expected)
    assert 0 <= interval.low <= interval.high <= 1


def test_the_interval_shrinks_with_more_examples() -> None:
    generator = np.random.default_rng(0)
    widths = []
    for size in (10, 200):
        interval = auroc_interval(generator.normal(1, 1, size), generator.normal(0, 1, size))
        widths.append(interval.high - interval.low)
    assert widths[1] < widths[0] / 2


def test_the_interval_is_not_empty_at_the_ends() -> None:
    low, high = wilson_interval(1.0, 8)
    assert 0.6 < low < 0.7 and high == 1
    low, high = wilson_interval(0.0, 32)
    assert low == 0 and high == pytest.approx(0.107, abs=0.001)
    assert wilson_interval(0.5, 100)[0] == pytest.approx(0.404, abs=0.002)
