"""An expert in full: the scores of its label are those of the displayed text."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from mxd.backend.queries.automatic_labels import accuracy_interval
from mxd.trainer.analysis.labelling.stored_scores import ScoredText, save_label_scores
from mxd.trainer.storage.database.label_scores import StoredScore
from mxd.trainer.storage.database.open import writing
from tests.backend.queries.test_run_cache import automatic

EXPERT = "/api/runs/first/experts/3"


def scores(client: TestClient) -> list[dict[str, Any]]:
    """The label scores of the expert."""
    found: list[dict[str, Any]] = client.get(EXPERT).json()["label_scores"]
    return found


def test_scores_are_shown_until_the_label_changes(own: Engine, own_client: TestClient) -> None:
    assert scores(own_client) == []
    with writing(own) as session:
        session.add(automatic(3, "features", 0.9, "Foxes"))
    measured = StoredScore("detection", "judge", 0.75, 0.5, 8, None)
    failed = StoredScore("fuzzing", "judge", None, None, 2, "fewer than 3 held-out texts of a kind")
    save_label_scores(own, "first", {3: ScoredText("Foxes", [measured, failed])})
    detection, fuzzing = scores(own_client)
    assert (detection["score"], detection["control"], detection["texts"]) == (0.75, 0.5, 8)
    assert (fuzzing["score"], fuzzing["control"], fuzzing["reason"]) == (None, None, failed.reason)
    assert own_client.put(f"{EXPERT}/label", json={"label": "Hounds"}).is_success
    assert scores(own_client) == []
    assert own_client.delete(f"{EXPERT}/label").is_success
    assert [each["method"] for each in scores(own_client)] == ["detection", "fuzzing"]


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
