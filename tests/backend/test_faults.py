"""Stores that are locked, damaged or full answer with a sentence, and nothing that was said to be written is lost."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, text

from backend import notes
from backend.app import create_app
from backend.cli import run
from backend.settings import Settings
from tests.backend.stores import made_up_store
from tests.faults import kills
from tests.faults.world import make_place
from trainer.store import sqlite_url, utc_now, writing

LABEL = "/api/runs/first/experts/3/label"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no lock."""

    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA busy_timeout=0")

    monkeypatch.setattr("trainer.opening._prepare_sqlite", prepare)


def test_while_somebody_else_writes_reading_goes_on_and_writing_is_refused(
    impatient: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made_up_store(tmp_path, sqlite_url(tmp_path)).dispose()
    holder = sqlite3.connect(tmp_path / "mxd.sqlite", isolation_level=None)
    with TestClient(create_app(Settings(data=tmp_path, frontend=tmp_path))) as client:
        holder.execute("BEGIN IMMEDIATE")
        answer = client.put(LABEL, json={"label": "wishes"})
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "store-unavailable"
        assert "Another program is writing" in answer.json()["error"]["message"]
        assert int(answer.headers["retry-after"]) > 0
        assert client.get("/api/runs/first/experts").status_code == 200
        assert run(["remove", "first", "--data", str(tmp_path)]) == 2
        assert "Another program is writing" in capsys.readouterr().err
        holder.execute("ROLLBACK")
        assert client.put(LABEL, json={"label": "wishes"}).status_code == 204
    holder.close()


def _spoil_page(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = b"\x55" * (len(content) - 4096)
    path.write_bytes(content)


def _spoil_packed(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE experts SET top_tokens = x'80', intervals = '[[1'")
    connection.close()


@pytest.mark.parametrize("spoil", [_spoil_page, _spoil_packed])
def test_a_damaged_store_is_said_to_be(
    spoil: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = made_up_store(tmp_path, sqlite_url(tmp_path))
    with store.connect() as connection:
        connection.execute(text("PRAGMA wal_checkpoint(TRUNCATE)"))
    store.dispose()
    app = create_app(Settings(data=tmp_path, frontend=tmp_path))
    spoil(tmp_path / "mxd.sqlite")
    with TestClient(app) as client:
        answer = client.get("/api/runs/first/experts/3")
        assert answer.status_code == 503
        assert "The store is damaged" in answer.json()["error"]["message"]
    assert run(["store", "check", "--data", str(tmp_path)]) in (1, 2)
    said = capsys.readouterr()
    assert "damaged" in said.out + said.err


def test_a_label_changed_after_the_clock_was_set_back_is_seen_to_be(
    own: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writing(own) as session:
        notes.set_label(session, "first", 3, "before")
        before = notes.labels_stamp(session, "first")
    monkeypatch.setattr("backend.notes.utc_now", lambda: utc_now() - timedelta(days=400))
    with writing(own) as session:
        notes.set_label(session, "first", 3, "after")
        assert notes.labels_stamp(session, "first") != before


def test_kills_lose_nothing(tmp_path: Path) -> None:
    """A few of those that ``python -m tests.faults`` does."""
    assert kills.label(make_place(tmp_path), 3, random.Random(0)) == []
