"""Opening databases: error messages without passwords, version checks, concurrent creation."""

import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from mxd.api.loading import opened_read_only
from mxd.backend.cli.main import run
from mxd.backend.database.engine import open_database
from mxd.trainer.errors import DamagedDatabaseError, UserError
from mxd.trainer.storage.database.open import CHAIN, open_trainer_database, sqlite_url
from tests.helpers.servers.postgresql import Server


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense:secret", "Invalid database URL"),
        ("mysql://me:secret@host/x", "Unsupported database: mysql"),
        ("postgresql+other://me:secret@host/x", "pip install"),
        ("postgresql://me:secret@127.0.0.1:1/x", "Check that the server is running"),
    ],
)
def test_error_messages_hide_the_password(url: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        open_trainer_database(url)
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_a_newer_version_is_rejected(postgresql_server: Server) -> None:
    url = postgresql_server.new()
    engine = open_trainer_database(url)
    with engine.begin() as connection:
        connection.execute(CHAIN.table.update().values(version_num="99"))
    engine.dispose()
    for message in (f"version 99; this version needs {CHAIN.newest}", "Install that version"):
        with pytest.raises(UserError, match=message):
            open_trainer_database(url)


@pytest.mark.parametrize("name", ["what?", "50%25", "a b#ü"])
def test_the_file_is_in_its_folder_whatever_the_folder_is_called(tmp_path: Path, name: str) -> None:
    open_database(sqlite_url(tmp_path / name)).dispose()
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.sqlite")] == [f"{name}/mxd.sqlite"]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_several_processes_may_create_a_database(kind: str, tmp_path: Path, postgresql_server: Server) -> None:
    url = sqlite_url(tmp_path) if kind == "sqlite" else postgresql_server.new()
    with ThreadPoolExecutor(4) as pool:
        for engine in pool.map(lambda _: open_database(url), range(4)):
            engine.dispose()


def test_a_missing_database_is_reported(postgresql_server: Server) -> None:
    with pytest.raises(UserError, match="does not exist"):
        open_trainer_database(postgresql_server.url("none"))


@pytest.mark.parametrize(
    "statement",
    ["CREATE TRIGGER evil AFTER INSERT ON notes BEGIN DELETE FROM notes; END", "CREATE VIEW evil AS SELECT 1"],
)
def test_a_foreign_file_with_triggers_or_views_is_rejected(tmp_path: Path, statement: str) -> None:
    file = tmp_path / "mxd.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE notes (text)")
        connection.execute(statement)
        connection.commit()
    with pytest.raises(UserError, match=r"was not made by this program: it has the (trigger|view) evil"):
        open_trainer_database(f"sqlite:///{file}")


def test_schemas_are_not_trusted(tmp_path: Path) -> None:
    engine = open_trainer_database(f"sqlite:///{tmp_path / 'mxd.sqlite'}")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA trusted_schema").scalar() == 0
        assert connection.exec_driver_sql("PRAGMA cell_size_check").scalar() == 1
    engine.dispose()


def damage(file: Path) -> None:
    """Overwrite the pages of the largest table."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE filler (text)")
        connection.executemany("INSERT INTO filler VALUES (?)", [("x" * 500,) for _ in range(200)])
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        pages = connection.execute("SELECT pageno FROM dbstat WHERE name = 'filler'").fetchall()
    content = bytearray(file.read_bytes())
    for (page,) in pages[1:]:
        content[(page - 1) * size : (page - 1) * size + 64] = b"\xff" * 64
    file.write_bytes(content)


def test_a_damaged_file_of_somebody_else_is_rejected_but_can_be_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mxd.sqlite"
    open_database(f"sqlite:///{file}").dispose()
    damage(file)
    open_database(f"sqlite:///{file}").dispose()  # a file of our own is opened without reading all of it
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    with pytest.raises(DamagedDatabaseError):
        open_database(f"sqlite:///{file}")
    with pytest.raises(DamagedDatabaseError), opened_read_only(f"sqlite:///{file}"):
        pass
    assert run(["database", "check", "--data", str(tmp_path)]) == 1
    assert "SQLite reports a damaged file" in capsys.readouterr().out
