"""A store of every version of before becomes one of today: what people wrote and what was measured is still there."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, inspect, select, text, update
from sqlalchemy.orm import Session

from backend.cli import run
from backend.database import open_database
from backend.notes import NotesBase
from backend.queries.runs import count_contexts
from backend.sessions import SessionsBase
from backend.upkeep.upgrade import CHAINS, Upgraded, upgrade_store
from tests.postgresql import Server
from trainer.errors import NotFoundError, UserError
from trainer.migrations import CHAIN
from trainer.opening import connect, creating
from trainer.store import ExpertRecord, IndexRecord, MetricRecord, RunRecord, sqlite_url, writing
from trainer.tables import Base
from trainer.versions import upgrade

STORES = Path(__file__).parent / "stores"
EARLIER = (1, 2, 3)
WRITTEN_BY_PEOPLE: dict[str, list[Any]] = {
    "labels": ["first", 7, "wishes"],
    "notes": ["first", 7, "at the end of a booking"],
    "tags": ["first", 7, "polite"],
    "lists": [1, "first", "to look at"],
    "list_entries": [1, 7, 1, "twice"],
    "access_tokens": [1, "read", "reading group", "d2f1"],
    "sessions": ["abcdefg", "first", "saved"],
}
NEVER_MEASURED = [None] * 4
"""Of metrics that were written before version 6."""
SINCE_VERSION_2 = ("tags", "lists", "list_entries", "access_tokens", "sessions")


def store_of(version: int, folder: Path) -> Path:
    """A store that the program of that version might have written."""
    path = folder / "mxd.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript((STORES / f"version_{version}.sql").read_text("utf-8"))
    connection.close()
    return path


def postgresql_store_of_version_4(server: Server) -> str:
    """URL of the same in PostgreSQL, which stores may be in since that version."""
    url = server.new()
    engine = connect(url)
    with engine.begin() as connection:
        connection.exec_driver_sql((STORES / "version_4_postgresql.sql").read_text("utf-8"))
    engine.dispose()
    return url


def rows(url: str, table: str) -> list[list[Any]]:
    """Everything in a table."""
    engine = connect(url)
    with engine.connect() as connection:
        found = [list(row) for row in connection.execute(text(f"SELECT * FROM {table}"))]
    engine.dispose()
    return found


@pytest.mark.parametrize("version", [*EARLIER, 4])
def test_what_people_wrote_is_kept(version: int, tmp_path: Path) -> None:
    store_of(version, tmp_path)
    upgrade_store(sqlite_url(tmp_path))
    open_database(sqlite_url(tmp_path)).dispose()
    for table, begin in WRITTEN_BY_PEOPLE.items():
        if version >= 2 or table not in SINCE_VERSION_2:
            (row,) = rows(sqlite_url(tmp_path), table)
            assert row[: len(begin)] == begin


@pytest.mark.parametrize("version", [*EARLIER, 4])
def test_runs_and_what_was_measured_of_them_are_kept(version: int, tmp_path: Path) -> None:
    store_of(version, tmp_path)
    upgrade_store(sqlite_url(tmp_path))
    assert rows(sqlite_url(tmp_path), "runs")[0][:3] == [1, "first", "finished"]
    measured = [1, 50, 3200, 0.2, 0.1, 4.0, 0.5, 1000.0, 5.0]
    assert rows(sqlite_url(tmp_path), "metrics") == [[*measured, *NEVER_MEASURED]]
    if version >= 2:
        assert rows(sqlite_url(tmp_path), "evaluations")[0][:3] == [1, 1, "first"]
        assert rows(sqlite_url(tmp_path), "probes")[0][:3] == [1, 1, "labels.csv"]


@pytest.mark.parametrize("version", EARLIER)
def test_an_index_that_cannot_be_read_any_more_is_named_and_gone(version: int, tmp_path: Path) -> None:
    store_of(version, tmp_path)
    assert upgrade_store(sqlite_url(tmp_path)) == Upgraded(version, CHAIN.newest, ("first",))
    for table in ("indexes", "experts", "contexts", "sequences"):
        assert rows(sqlite_url(tmp_path), table) == []
    engine = connect(sqlite_url(tmp_path))
    assert [name for name in inspect(engine).get_table_names() if name.startswith(("context_text", "search_"))] == []
    engine.dispose()


@pytest.mark.parametrize("said", ["by SQLite", "by Alembic"])
def test_a_file_of_the_first_released_version_keeps_its_index(said: str, tmp_path: Path) -> None:
    path = store_of(4, tmp_path)
    if said == "by Alembic":  # as its program did later
        with sqlite3.connect(path) as connection:
            for owner, version in (("trainer", "4"), ("backend", "1")):
                column = "version_num VARCHAR(32) NOT NULL, CONSTRAINT {0}_version_pkc PRIMARY KEY (version_num)"
                connection.execute(f"CREATE TABLE {owner}_version ({column.format(owner)})")
                connection.execute(f"INSERT INTO {owner}_version VALUES (?)", [version])
        connection.close()
    before = rows(sqlite_url(tmp_path), "contexts")
    assert upgrade_store(sqlite_url(tmp_path)) == Upgraded(4, CHAIN.newest, ())
    assert rows(sqlite_url(tmp_path), "contexts") == before != []
    open_database(sqlite_url(tmp_path)).dispose()
    assert upgrade_store(sqlite_url(tmp_path)) == Upgraded(CHAIN.newest, CHAIN.newest, ())


def test_a_store_of_the_first_released_version_in_postgresql_is_upgraded_and_loses_nothing(
    postgresql_server: Server,
) -> None:
    url = postgresql_store_of_version_4(postgresql_server)
    with pytest.raises(UserError, match="make a copy of it, then type: mxd store upgrade"):
        open_database(url)
    tables = (
        *WRITTEN_BY_PEOPLE,
        "runs",
        "metrics",
        "indexes",
        "experts",
        "sequences",
        "contexts",
        "evaluations",
        "probes",
    )
    before = {table: rows(url, table) for table in (*tables, "search_documents")}
    assert all(before.values())
    assert upgrade_store(url) == Upgraded(4, CHAIN.newest, ())
    before["metrics"] = [[*measured, *NEVER_MEASURED] for measured in before["metrics"]]
    assert {table: rows(url, table) for table in before} == before
    upgraded, made = open_database(url), open_database(postgresql_server.new())
    assert shape(upgraded) == shape(made)
    upgraded.dispose()
    made.dispose()


def test_counts_may_be_larger_than_32_bits(tmp_path: Path, postgresql_server: Server) -> None:
    many = 3_000_000_000_000
    store_of(4, tmp_path)
    for url in (sqlite_url(tmp_path), postgresql_store_of_version_4(postgresql_server)):
        upgrade_store(url)
        store = open_database(url)
        with writing(store) as session:
            session.execute(update(RunRecord).values(parameters=many, tokens_wanted=many, tokens_done=many))
            session.execute(update(MetricRecord).values(tokens=many))
            session.execute(update(IndexRecord).values(tokens=many, contexts=many))
            session.execute(update(ExpertRecord).values(active_tokens=many))
        with Session(store) as session:
            assert session.scalars(select(RunRecord.tokens_done)).all() == [many]
            assert session.scalars(select(ExpertRecord.active_tokens)).all() == [many]
            contexts = count_contexts(session)
            assert (contexts, type(contexts)) == (many, int)
        store.dispose()


@pytest.mark.parametrize("version", [*EARLIER, 4])
def test_an_earlier_store_is_refused_until_it_is_upgraded(version: int, tmp_path: Path) -> None:
    store_of(version, tmp_path)
    with pytest.raises(UserError, match="make a copy of it, then type: mxd store upgrade"):
        open_database(sqlite_url(tmp_path))
    upgrade_store(sqlite_url(tmp_path))
    open_database(sqlite_url(tmp_path)).dispose()


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.owner)
def test_a_later_store_is_refused_and_left_alone(chain: Any, tmp_path: Path) -> None:
    url = sqlite_url(tmp_path)
    store = open_database(url)
    with store.begin() as connection:
        connection.execute(chain.table.update().values(version_num="99"))
    store.dispose()
    for attempt in (open_database, upgrade_store):
        with pytest.raises(UserError, match="written by a later version of this program"):
            attempt(url)
    assert rows(url, chain.table.name) == [["99"]]


def test_an_upgrade_that_fails_half_way_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store_of(3, tmp_path)
    monkeypatch.setattr("backend.upkeep.upgrade.version_of", _full_disk)
    before = dump(path)
    with pytest.raises(MemoryError):
        upgrade_store(sqlite_url(tmp_path))
    assert dump(path) == before


def _full_disk(connection: Any, chain: Any) -> int:
    if connection.exec_driver_sql("SELECT count(*) FROM sqlite_master WHERE name = 'trainer_version'").scalar():
        raise MemoryError
    return 0


def dump(path: Path) -> list[str]:
    """All that is in a file of SQLite."""
    with sqlite3.connect(path) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = [str(connection.execute(f"SELECT * FROM {name}").fetchall()) for name in sorted(names)]
    connection.close()
    return found


def test_there_must_be_a_store(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="There is no store at"):
        upgrade_store(sqlite_url(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_rows_without_those_they_belong_to_stop_it(tmp_path: Path) -> None:
    path = store_of(3, tmp_path)
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO metrics VALUES (9, 50, 3200, 0.2, 0.1, 4.0, 0.5, 1000.0, 5.0)")
    connection.close()
    with pytest.raises(UserError, match="left as it was"):
        upgrade_store(sqlite_url(tmp_path))
    assert len(dump(path)) == len(dump(store_of(3, _folder(tmp_path / "other"))))


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_the_command_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_of(3, tmp_path)
    assert run(["store", "upgrade", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out == (
        f"The store is of version {CHAIN.newest} now (it was 3); keep the copy until you have looked.\n"
        "Index these runs again, as their index cannot be read any more: first\n"
    )
    assert run(["store", "upgrade", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"The store is up to date (version {CHAIN.newest}); nothing was changed.\n"


# ---------------------------------------------------------------- the revisions make what the program makes


def shape(engine: Engine) -> dict[str, Any]:
    """Every table, column, key, constraint and index of a database, as it says them itself."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            found = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
            return {name: " ".join(sql.split()) for name, sql in found}
        columns = text(
            "SELECT table_name, column_name, data_type, is_nullable, character_maximum_length, column_default "
            "FROM information_schema.columns WHERE table_schema = 'public'"
        )
        indexes = text("SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'")
        keys = text("SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint")
        return {
            "columns": {tuple(row) for row in connection.execute(columns)},
            "indexes": set(connection.scalars(indexes)),
            "keys": {tuple(row) for row in connection.execute(keys) if row[0] != "-"},
        }


def by_revisions(url: str) -> Engine:
    """A store that the revisions have made from nothing."""
    engine = connect(url)
    with creating(engine) as connection:
        for chain in CHAINS:
            upgrade(connection, chain)
    return engine


def test_revisions_make_what_the_program_makes(tmp_path: Path, postgresql_server: Server) -> None:
    pairs = [
        (sqlite_url(tmp_path / "made"), sqlite_url(tmp_path / "revised")),
        (postgresql_server.new(), postgresql_server.new()),
    ]
    for made_url, revised_url in pairs:
        made, revised = open_database(made_url), by_revisions(revised_url)
        found = shape(made)
        assert found
        assert shape(revised) == found
        made.dispose()
        revised.dispose()


def test_alembic_finds_no_difference_to_the_tables_in_the_code(tmp_path: Path, postgresql_server: Server) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    own = {f"{chain.owner}_version" for chain in CHAINS} | {"search_documents"}
    for url in (sqlite_url(tmp_path), postgresql_server.new()):
        engine = by_revisions(url)
        with engine.connect() as connection:
            options = {
                "compare_server_default": True,
                "include_name": lambda name, kind, _parents: kind != "table" or name not in own,
            }
            context = MigrationContext.configure(connection, opts=options)
            metadata = [Base.metadata, NotesBase.metadata, SessionsBase.metadata]
            assert compare_metadata(context, metadata) == []  # type: ignore[arg-type]  # it takes several, too
        engine.dispose()


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.owner)
def test_the_newest_revision_is_the_version_of_the_program(chain: Any) -> None:
    from alembic.script import ScriptDirectory

    script = ScriptDirectory(chain.scripts)
    assert script.get_current_head() == str(chain.newest)


def test_a_store_of_the_first_postgresql_version_is_taken_over(postgresql_server: Server) -> None:
    url = postgresql_store_of_version_4(postgresql_server)
    # What its first program did: the version in a table without a name of its owner.
    engine = connect(url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE trainer_version, backend_version"))
        connection.execute(text("CREATE TABLE schema_version (version integer NOT NULL)"))
        connection.execute(text("INSERT INTO schema_version VALUES (4)"))
    engine.dispose()
    with pytest.raises(UserError, match="make a copy of it, then type: mxd store upgrade"):
        open_database(url)
    assert upgrade_store(url) == Upgraded(4, CHAIN.newest, ())
    assert rows(url, "labels")[0][:3] == ["first", 7, "wishes"]
    open_database(url).dispose()
