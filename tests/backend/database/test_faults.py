"""Locked, damaged, full or read-only databases give clear errors, and lose no committed data."""

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, text

from mxd.backend.api.app import create_app
from mxd.backend.cli.main import run
from mxd.backend.database import annotations as notes
from mxd.backend.settings import Settings
from mxd.trainer.storage.database.open import sqlite_url, writing
from mxd.trainer.storage.database.tables import utc_now
from tests.faults import kills
from tests.faults.world import make_place
from tests.helpers.databases import made_up_database

LABEL = "/api/runs/first/experts/3"


def _spoil_page(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = b"\x55" * (len(content) - 4096)
    path.write_bytes(content)


def _spoil_packed(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE experts SET top_tokens = x'80', bins = '[[1'")
    connection.close()


@pytest.mark.parametrize("spoil", [_spoil_page, _spoil_packed])
def test_damaged_database(spoil: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = made_up_database(tmp_path, sqlite_url(tmp_path))
    with database.connect() as connection:
        connection.execute(text("PRAGMA wal_checkpoint(TRUNCATE)"))
    database.dispose()
    app = create_app(Settings(data=tmp_path, frontend=tmp_path))
    spoil(tmp_path / "mxd.sqlite")
    with TestClient(app) as client:
        answer = client.get("/api/runs/first/experts/3")
        assert answer.status_code == 503
        assert "The database is damaged" in answer.json()["error"]["message"]
    assert run(["database", "check", "--data", str(tmp_path)]) in (1, 2)
    said = capsys.readouterr()
    assert "damaged" in said.out + said.err


def test_a_label_change_is_detected_after_the_clock_was_set_back(own: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with writing(own) as session:
        notes.set_label(session, "first", 3, "before")
        before = notes.labels_stamp(session, "first")
    monkeypatch.setattr("mxd.backend.database.annotations.utc_now", lambda: utc_now() - timedelta(days=400))
    with writing(own) as session:
        notes.set_label(session, "first", 3, "after")
        assert notes.labels_stamp(session, "first") != before


def test_killed_processes_lose_no_data(tmp_path: Path) -> None:
    """A few of the kills of ``python -m tests.faults``."""
    assert kills.label(make_place(tmp_path), 3, random.Random(0)) == []


def test_a_read_only_data_folder_can_be_browsed(made_up: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = shutil.copytree(made_up, tmp_path / "data")
    before = {path.name: path.read_bytes() for path in data.glob("mxd.sqlite*") if path.suffix == ".sqlite"}

    def no_write(_path: object, mode: int, **_more: Any) -> bool:
        return mode != os.W_OK

    monkeypatch.setattr(os, "access", no_write)  # root may write everywhere
    with TestClient(create_app(Settings(data=data, frontend=data / "dist"))) as client:
        for path in ("/api/runs", "/api/runs/first/experts", "/api/runs/first/experts/1/examples", "/api/health"):
            assert client.get(path).status_code == 200, path
        answer = client.patch("/api/runs/first/experts/1", json={"label": "x"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "database-unavailable")
        assert "read-only" in answer.json()["error"]["message"]
    assert {path.name: path.read_bytes() for path in data.glob("mxd.sqlite*")} == before
