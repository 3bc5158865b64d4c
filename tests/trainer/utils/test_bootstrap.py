"""Bootstrap intervals: position and width."""

from __future__ import annotations

import numpy as np
import pytest

from mxd.trainer.utils.bootstrap import Bootstrap

VALUES_S = np.random.default_rng(0).normal(3.0, 1.0, size=200)


def test_the_interval_has_the_theoretical_width() -> None:
    interval = Bootstrap(200, 2000, seed=1).mean(VALUES_S)
    assert interval.value == pytest.approx(VALUES_S.mean())
    assert interval.low < interval.value < interval.high
    theory = 2 * 1.96 * VALUES_S.std() / np.sqrt(200)
    assert interval.high - interval.low == pytest.approx(theory, rel=0.1)


def test_a_constant_has_no_width() -> None:
    interval = Bootstrap(10, 100, seed=0).mean(np.full(10, 0.25))
    assert (interval.value, interval.low, interval.high) == pytest.approx((0.25, 0.25, 0.25))


def test_a_ratio_is_paired() -> None:
    interval = Bootstrap(200, 500, seed=0).ratio(2 * VALUES_S, VALUES_S)
    assert (interval.value, interval.low, interval.high) == pytest.approx((2, 2, 2))


def test_a_ratio_to_zero_is_nan() -> None:
    interval = Bootstrap(4, 100, seed=0).ratio(np.ones(4), np.zeros(4))
    assert not np.isfinite([interval.value, interval.low, interval.high]).any()


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
