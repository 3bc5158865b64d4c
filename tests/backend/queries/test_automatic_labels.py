"""Search over automatic labels."""

from __future__ import annotations

import pytest

from mxd.backend.queries.automatic_labels import FIELDS, ShownLabels


def _labels(*labels: tuple[str, float]) -> ShownLabels:
    """Labels of the experts 0, 1, …, with their balanced accuracies."""
    assert FIELDS[:3] == ("label", "labeller", "balanced_accuracy")
    return ShownLabels(
        {expert: (label, "features", accuracy, 1.0, 1.0, 20) for expert, (label, accuracy) in enumerate(labels)}
    )


def test_whole_words_come_first_then_beginnings_of_words() -> None:
    labels = _labels(
        ("“/” after numbers", 1.0), ("Numbers after “0.”", 0.9), ("English: “number”", 0.8), ("After “number of”", 0.7)
    )
    assert labels.like("number") == [2, 3, 1, 0]
    assert _labels(("“making”", 1.0), ("“village”, “kingdom”", 0.9), ("“king”", 0.8)).like("king") == [2, 1]
    assert _labels(("“well”", 1.0), ("“they”, “we”", 0.9), ("“we”", 0.8), ("“power”", 0.7)).like("we") == [2, 1, 0]


def test_imported_labels_are_found_and_their_score_is_not_measured() -> None:
    rows = {0: ("Numbers", "neuronpedia", 0.0, None, None, 0), 1: ("Numbers", "features", 0.7, 1.0, 1.0, 20)}
    labels = ShownLabels(rows)
    imported, tested = labels.of(0), labels.of(1)
    assert imported is not None and tested is not None
    assert (imported["balanced_accuracy"], tested["balanced_accuracy"]) == (None, 0.7)
    assert labels.like("numbers") == [0, 1]


def test_weak_labels_are_not_found() -> None:
    assert _labels(("Numbers", 0.6), ("Numbers", 0.66)).like("NUMBERS") == [1]


@pytest.mark.parametrize(
    ("precision", "recall", "density", "score", "weaknesses"),
    [
        (1.0, 0.05, 0.001, 0.1 / 1.05, ["recall below 10 %"]),
        (1.0, 0.1, 0.001, 0.2 / 1.1, []),
        (0.24, 0.05, 0.001, 0.024 / 0.29, ["precision below 25 %", "recall below 10 %"]),
        (None, None, 0.1, None, []),
        (None, 0.0, 0.0001, None, []),
        (None, 0.0, 0.001, 0.0, ["recall below 10 %"]),
    ],
)
def test_an_accurate_label_may_be_too_weak_for_a_name(
    precision: float | None, recall: float | None, density: float, score: float | None, weaknesses: list[str]
) -> None:
    labels = ShownLabels({7: ("Numbers", "features", 0.9, precision, recall, 20)}, {7: density})
    label = labels.of(7)
    assert label is not None
    assert (label["weaknesses"], label["is_clear"]) == (weaknesses, not weaknesses)
    assert label["label_score"] == pytest.approx(score)
    assert labels.best_first == ([] if weaknesses else [7])
