"""AUROC by definition, and its interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from mxd.backend.cli.mcp.detection import auroc, auroc_interval, peak_activations

VALUES = st.lists(st.integers(0, 4), min_size=1, max_size=12)


@given(VALUES, VALUES)
def test_auc_equals_that_of_scikit_learn(positive: list[int], negative: list[int]) -> None:
    wanted = roc_auc_score([1] * len(positive) + [0] * len(negative), positive + negative)
    assert auroc(np.array(positive), np.array(negative)) == pytest.approx(wanted)
    low, high = auroc_interval(np.array(positive), np.array(negative))
    assert 0 <= low <= high <= 1


def test_the_interval_shrinks_with_more_texts() -> None:
    generator = np.random.default_rng(0)
    widths = []
    for size in (10, 200):
        low, high = auroc_interval(generator.normal(1, 1, size), generator.normal(0, 1, size))
        widths.append(high - low)
    assert widths[1] < widths[0] / 2


def test_peaks_exclude_the_start_token() -> None:
    tokens = [
        {"start": True, "experts": [{"expert": 3, "coefficient": 9.0}]},
        {"start": False, "experts": [{"expert": 3, "coefficient": 0.5}, {"expert": 4, "coefficient": 0.2}]},
        {"start": False, "experts": [{"expert": 3, "coefficient": 0.7}]},
    ]
    assert peak_activations({"tokens": tokens}) == {3: 0.7, 4: 0.2}
