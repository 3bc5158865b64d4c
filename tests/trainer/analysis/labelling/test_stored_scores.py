"""Stored scores belong to the text of one label: they are replaced with it and deleted with the index."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from mxd.trainer.analysis.labelling.stored_scores import ScoredText, save_label_scores
from mxd.trainer.errors import NotFoundError
from mxd.trainer.storage.database.label_scores import StoredScore, label_scores
from mxd.trainer.storage.database.open import delete_index, sqlite_url, writing
from tests.helpers.databases import made_up_database

DETECTION = StoredScore("detection", "judge", 0.75, 0.5, 8, None)
FUZZING = StoredScore("fuzzing", "judge", None, None, 2, "fewer than 3 held-out texts of a kind")


def test_scores_are_replaced_per_method_and_judge_and_deleted_with_the_index(tmp_path: Path) -> None:
    database = made_up_database(tmp_path, sqlite_url(tmp_path))
    save_label_scores(database, "first", {3: ScoredText("foxes", [FUZZING, DETECTION]), 4: ScoredText("dogs", [])})
    with Session(database) as session:
        assert label_scores(session, 1, 3, "foxes") == (DETECTION, FUZZING)
        assert label_scores(session, 1, 3, "Foxes") == label_scores(session, 1, 4, "dogs") == ()
    other, better = replace(DETECTION, judge="another"), replace(DETECTION, score=1.0)
    save_label_scores(database, "first", {3: ScoredText("foxes", [better, other])})
    with writing(database) as session:
        assert label_scores(session, 1, 3, "foxes") == (other, better, FUZZING)
        delete_index(session, 1)
        assert label_scores(session, 1, 3, "foxes") == ()
    database.dispose()


def test_scores_of_an_earlier_label_are_deleted(tmp_path: Path) -> None:
    database = made_up_database(tmp_path, sqlite_url(tmp_path))
    save_label_scores(database, "first", {3: ScoredText("foxes", [DETECTION, FUZZING])})
    save_label_scores(database, "first", {3: ScoredText("hounds", [DETECTION])})
    with Session(database) as session:
        assert label_scores(session, 1, 3, "foxes") == ()
        assert label_scores(session, 1, 3, "hounds") == (DETECTION,)
    database.dispose()


def test_an_unknown_run_is_an_error(tmp_path: Path) -> None:
    database = made_up_database(tmp_path, sqlite_url(tmp_path))
    with pytest.raises(NotFoundError):
        save_label_scores(database, "unknown", {3: ScoredText("foxes", [DETECTION])})
    database.dispose()
