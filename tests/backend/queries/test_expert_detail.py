"""The interval of a label's accuracy."""

from __future__ import annotations

import pytest

from mxd.backend.queries.automatic_labels import accuracy_interval


def test_the_interval_of_an_accuracy_is_over_the_held_out_examples() -> None:
    label = {
        "labeller": "features",
        "balanced_accuracy": 0.7,
        "precision": None,
        "recall": 0.0,
        "test_examples": 10,
    }
    # Wilson's interval of 4 of 10 is 0.168 to 0.687.
    assert accuracy_interval(label, 0.01) == pytest.approx((0.584, 0.844), abs=5e-4)
    assert accuracy_interval(label | {"balanced_accuracy": None}, 0.01) is None
    assert accuracy_interval(label | {"labeller": "a language model"}, 0.01) is None
    assert accuracy_interval(None, 0.01) is None


def test_a_label_that_matches_most_inactive_tokens_has_an_interval_that_says_so() -> None:
    """All 9 examples match, and 80 % of the inactive tokens: balanced accuracy 0.6."""
    density, false_positive_rate = 0.5, 0.8
    precision = density / (density + false_positive_rate * (1 - density))
    label = {
        "labeller": "features",
        "balanced_accuracy": (1 + 1 - false_positive_rate) / 2,
        "precision": precision,
        "recall": 1.0,
        "test_examples": 9,
    }
    # Wilson's interval of 9 of 9 is 0.701 to 1.
    assert accuracy_interval(label, density) == pytest.approx((0.451, 0.6), abs=1e-3)
