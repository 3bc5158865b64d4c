"""Labels and lists survive a damaged database file."""

from __future__ import annotations

from pathlib import Path

import pytest

from mxd.backend.cli.main import run as mxd
from mxd.backend.database import annotations as notes
from mxd.backend.database import lists
from mxd.backend.database.engine import opened, reading
from mxd.trainer.storage.database.open import sqlite_url, writing
from tests.helpers.databases import made_up_database

PAGE = 4096


def annotated(data: Path) -> Path:
    """A database with labels and a list; returns its file."""
    database = made_up_database(data, sqlite_url(data))
    with writing(database) as session:
        for expert in range(100):
            notes.set_label(session, "first", expert, f"label {expert}")
        lists.make_list(session, "first", "foxes", [3, 1])
    with database.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    database.dispose()
    return data / "mxd.sqlite"


def damage_examples(file: Path) -> None:
    """Overwrite the pages of the examples, which fill most of the file."""
    with opened(f"sqlite:///{file}") as database, database.connect() as connection:
        root = connection.exec_driver_sql("SELECT rootpage FROM sqlite_master WHERE name = 'examples'").scalar_one()
    content = bytearray(file.read_bytes())
    content[(root - 1) * PAGE : root * PAGE] = b"\xff" * PAGE
    file.write_bytes(content)


def test_labels_and_lists_of_a_damaged_file_are_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, rescued = annotated(tmp_path), tmp_path / "rescued.sqlite"
    damage_examples(file)
    assert mxd(["database", "check", "--data", str(tmp_path)]) == 1
    assert "mxd database rescue NEW.sqlite" in capsys.readouterr().out
    before = file.read_bytes()
    assert mxd(["database", "rescue", str(rescued), "--data", str(tmp_path)]) == 0
    assert file.read_bytes() == before
    with opened(f"sqlite:///{rescued}") as database, reading(database) as session:
        assert notes.all_labels(session, "first") == {expert: f"label {expert}" for expert in range(100)}
        ((record, size),) = lists.lists_with_counts(session, "first")
        assert (record.name, size) == ("foxes", 2)


def test_a_damaged_table_gives_its_readable_rows(tmp_path: Path) -> None:
    file = annotated(tmp_path)
    content = file.read_bytes()
    place = content.rindex(b"label 50")
    page = place // PAGE * PAGE
    file.write_bytes(content[:page] + b"\xff" * PAGE + content[page + PAGE :])
    assert mxd(["database", "rescue", str(tmp_path / "new.sqlite"), "--data", str(tmp_path)]) == 0


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    annotated(tmp_path)
    (tmp_path / "new.sqlite").write_text("mine")
    assert mxd(["database", "rescue", str(tmp_path / "new.sqlite"), "--data", str(tmp_path)]) == 2
    assert "Choose a new file" in capsys.readouterr().err
    assert (tmp_path / "new.sqlite").read_text() == "mine"
