"""Stored recurrences are read back, replaced, and deleted with the index."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.orm import Session

from mxd.trainer.analysis.recurrence import save_recurrence
from mxd.trainer.analysis.results import ExpertRecurrence, Match, Recurrence, stored_matches
from mxd.trainer.config import RecurrenceConfig, TextConfig
from mxd.trainer.storage.database.open import delete_index, sqlite_url, writing
from mxd.trainer.storage.database.tables import MeasurementRecord
from mxd.trainer.utils.bootstrap import Interval
from tests.helpers.databases import made_up_database

CONFIG = RecurrenceConfig(text=TextConfig(dataset="held-out.jsonl"), tokens=4100)
MATCH = Match("seed-b", 7, 0.5, 0.25, 0.375, 0.625, 0.125, 0.0, mutual=True)


def result(run: str, *matches: Match) -> Recurrence:
    return Recurrence(
        run=run,
        num_experts=160,
        tokens=4096,
        min_tokens=20,
        runs=(),
        found_in_all=Interval(1.0, 1.0, 1.0),
        experts=(ExpertRecurrence(3, 40, matches),),
    )


def test_matches_are_replaced_and_deleted_with_the_index(tmp_path: Path) -> None:
    database = made_up_database(tmp_path, sqlite_url(tmp_path))
    other = Match("seed-a", 2, 0.5, 0.25, 0.375, 0.625, 0.75, 0.0, mutual=True)
    assert save_recurrence(database, result("first", MATCH, other), CONFIG)
    with Session(database) as session:
        assert stored_matches(session, 1, 3) == (other, MATCH)
        assert [match.found for match in stored_matches(session, 1, 3)] == [False, True]
        assert stored_matches(session, 1, 4) == ()
        stored = session.get(MeasurementRecord, (1, "recurrence"))
        assert stored is not None and stored.settings["tokens"] == 4096
    assert save_recurrence(database, result("first", MATCH), CONFIG)
    with writing(database) as session:
        assert stored_matches(session, 1, 3) == (MATCH,)
        delete_index(session, 1)
        assert stored_matches(session, 1, 3) == ()
    database.dispose()


def test_a_run_without_an_index_is_not_stored(tmp_path: Path) -> None:
    database = made_up_database(tmp_path, sqlite_url(tmp_path))
    assert not save_recurrence(database, result("second", MATCH), CONFIG)
    assert not save_recurrence(database, result("unknown", MATCH), CONFIG)
    database.dispose()
