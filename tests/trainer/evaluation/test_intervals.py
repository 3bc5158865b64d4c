"""Intervals: where they must lie, and what makes them wider."""

from __future__ import annotations

import numpy as np
import pytest

from trainer.evaluation.intervals import Bootstrap

VALUES_S = np.random.default_rng(0).normal(3.0, 1.0, size=200)


def test_the_mean_lies_inside_and_the_width_is_that_of_theory() -> None:
    found = Bootstrap(200, 2000, seed=1).mean(VALUES_S)
    assert found.value == pytest.approx(VALUES_S.mean())
    assert found.low < found.value < found.high
    theory = 2 * 1.96 * VALUES_S.std() / np.sqrt(200)
    assert found.high - found.low == pytest.approx(theory, rel=0.1)


def test_a_constant_has_no_width() -> None:
    found = Bootstrap(10, 100, seed=0).mean(np.full(10, 0.25))
    assert (found.value, found.low, found.high) == pytest.approx((0.25, 0.25, 0.25))


def test_a_ratio_is_paired() -> None:
    found = Bootstrap(200, 500, seed=0).ratio(2 * VALUES_S, VALUES_S)
    assert (found.value, found.low, found.high) == pytest.approx((2, 2, 2))


def test_a_ratio_to_nothing_is_no_number() -> None:
    found = Bootstrap(4, 100, seed=0).ratio(np.ones(4), np.zeros(4))
    assert not np.isfinite([found.value, found.low, found.high]).any()


def test_seeds_that_differ_make_it_wider() -> None:
    bootstrap = Bootstrap(200, 1000, seed=0)
    same = bootstrap.mean_over_seeds([VALUES_S, VALUES_S])
    apart = bootstrap.mean_over_seeds([VALUES_S - 1, VALUES_S + 1])
    assert same.value == pytest.approx(apart.value)
    assert apart.high - apart.low > 3 * (same.high - same.low)
