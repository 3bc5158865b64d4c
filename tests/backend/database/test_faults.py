"""Locked, damaged, full or read-only databases give clear errors, and lose no committed data."""

import os
import random
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, text

from benchmarks.faults import kills
from benchmarks.faults.world import make_place
from mxd.backend.api.app import create_app
from mxd.backend.cli.main import run
from mxd.backend.database import annotations as notes
from mxd.backend.settings import Settings
from mxd.trainer.storage.database.open import sqlite_url, writing
from mxd.trainer.storage.database.tables import utc_now
from tests.helpers.databases import made_up_database


@pytest.mark.parametrize("spoils_packed", [True, False])
def test_damaged_database(spoils_packed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database, path = made_up_database(tmp_path, sqlite_url(tmp_path)), tmp_path / "mxd.sqlite"
    with database.begin() as connection:
        if spoils_packed:
            connection.execute(text("UPDATE experts SET top_tokens = x'80', bins = '[[1'"))
    with database.connect() as connection:
        connection.execute(text("PRAGMA wal_checkpoint(TRUNCATE)"))
    database.dispose()
    app = create_app(Settings(data=tmp_path, frontend=tmp_path))
    if not spoils_packed:
        path.write_bytes(path.read_bytes()[:4096] + b"\x55" * (path.stat().st_size - 4096))
    with TestClient(app) as client:
        answer = client.get("/api/runs/first/experts/3")
    assert answer.status_code == 503
    assert "The database is damaged" in answer.json()["error"]["message"]
    assert run(["database", "check", "--data", str(tmp_path)]) in (1, 2)
    assert "damaged" in "".join(capsys.readouterr())


def test_a_label_change_is_detected_after_the_clock_was_set_back(own: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = []
    for label, days in (("before", 0), ("after", 400)):
        now = utc_now() - timedelta(days=days)
        monkeypatch.setattr("mxd.backend.database.annotations.utc_now", lambda now=now: now)
        with writing(own) as session:
            notes.set_label(session, "first", 3, label)
            stamps.append(notes.labels_stamp(session, "first"))
    assert stamps[0] != stamps[1]


def test_killed_processes_lose_no_data(tmp_path: Path) -> None:
    """A few of the kills of ``python -m benchmarks.faults``."""
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
