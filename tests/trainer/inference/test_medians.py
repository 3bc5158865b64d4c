"""Medians from the index, and gate tests that name them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxd.trainer.inference.medians import median_in_units
from mxd.trainer.storage.database.tables import ExpertRecord


def record(values: np.ndarray, high: float, p99: float = 1.0) -> ExpertRecord:
    histogram = np.histogram(values, bins=64, range=(0, high))[0].tolist()
    return ExpertRecord(histogram=histogram, histogram_high=high, p99=p99)


@given(st.lists(st.floats(0.001, 7.999), min_size=1, max_size=300))
def test_the_median_is_at_most_one_bin_off(values: list[float]) -> None:
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    assert low - 8 / 64 <= median_in_units(record(np.array(values), 8.0)) <= high + 8 / 64


def test_medians_are_in_units() -> None:
    values = np.linspace(0.01, 3.99, 1000)
    assert median_in_units(record(values, 4.0, p99=3.9)) == pytest.approx(2 / 3.9, rel=0.02)


def test_a_dead_expert_has_median_zero() -> None:
    assert median_in_units(ExpertRecord(histogram=[0] * 64, histogram_high=0.0, p99=0.0)) == 0
