"""Damaged, full, read-only, older, locked and frozen databases: clear errors, rescued labels, limits of waiting."""

import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Column, Connection, Engine, MetaData, Text, inspect, text, update
from sqlalchemy.orm import Session

from benchmarks.faults import kills
from benchmarks.faults.world import make_place
from mxd.backend.api.app import create_app
from mxd.backend.cli.main import run as mxd
from mxd.backend.database import annotations, maintenance
from mxd.backend.database.annotations import set_label
from mxd.backend.database.engine import open_database, opened, reading
from mxd.backend.database.maintenance import OWNERS, UpgradeResult, check_database, compact_database, upgrade_database
from mxd.backend.queries.runs import count_examples
from mxd.backend.settings import Settings
from mxd.trainer.analysis.indexing.build import build_index
from mxd.trainer.config.analysis import IndexConfig
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.database import open as trainer_open
from mxd.trainer.storage.database.engine import connect
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import OF_TRAINER, OwnedTables, sqlite_url, writing
from mxd.trainer.storage.database.search import delete_search
from mxd.trainer.storage.database.tables import IndexRecord, MetricRecord, RunRecord, utc_now
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import register_run
from tests.backend.cli.conftest import Capture, document, output, rejected
from tests.helpers.databases import made_up_database, stored_rows
from tests.helpers.runs import World
from tests.helpers.servers.postgresql import Server


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def intact(fitted: World, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A database with an index. Tests roll back their damage."""
    data, server = tmp_path_factory.mktemp("intact"), request.getfixturevalue("postgresql_server")
    # A copy, because indexing writes the units of the run.
    shutil.copytree(fitted.data / "runs", data / "runs")
    run, config = Run.load("small", data), IndexConfig(text=fitted.text, tokens=640)
    with opened(sqlite_url(data) if request.param == "sqlite" else server.new()) as database:
        register_run(run, database)
        build_index(run, config, LanguageModel.load(run.config.language_model, "cpu"), database)
        yield database


def findings(database: Engine, damage: Callable[[Session], object] = lambda _session: None) -> list[str]:
    """Return all findings about a database after some damage, which is rolled back."""
    with reading(database) as session:
        damage(session)
        return list(check_database(session, sample=1_000))


DAMAGE: list[tuple[str, dict[str, bytes], str]] = [
    ("DELETE FROM sequences WHERE sequence = (SELECT max(sequence) FROM examples)", {}, "missing token sequence"),
    ("DELETE FROM examples WHERE expert = (SELECT max(expert) FROM examples)", {}, "examples, found"),
    ("DELETE FROM experts WHERE active_tokens = 0 OR expert = 3", {}, "experts, found"),
    ("UPDATE experts SET density = density + 0.1", {}, "does not match their active tokens"),
    ("UPDATE examples SET activation = activation * 2 WHERE bin = 0 AND rank = 1", {}, "another activation"),
    ("UPDATE examples SET position = 16 WHERE bin = 0 AND rank = 0", {}, "position 16 in a sequence of 16 tokens"),
    ("UPDATE experts SET max_activation = max_activation + 1", {}, "does not have its largest activation"),
    ("UPDATE experts SET active_tokens = active_tokens + 1 WHERE active_tokens > 0", {}, "do not add up"),
    *(
        ("UPDATE examples SET active = :packed WHERE rank = 0", {"packed": packed}, "cannot be decoded")
        for packed in (b"", b"\xff", b"\x05\x01")
    ),
]


@pytest.mark.parametrize(("statement", "values", "problem"), DAMAGE)
def test_damage_is_found(intact: Engine, statement: str, values: dict[str, bytes], problem: str) -> None:
    found = findings(intact, lambda session: session.execute(text(statement), values))
    assert any(problem in it for it in found), found


def test_only_missing_search_documents_are_found(intact: Engine) -> None:
    assert findings(intact) == []
    (found,) = findings(intact, lambda session: delete_search(session, 1))
    assert "searchable experts, found 0" in found


def test_the_command_returns_1_if_there_are_findings(intact: Engine, capsys: Capture) -> None:
    url = intact.url.render_as_string(hide_password=False)
    assert document(capsys, "database", "check", "--database", url)["findings"] == []
    with intact.begin() as connection:
        connection.execute(text("UPDATE indexes SET examples = examples + 1"))
    assert mxd(["database", "check", "--database", url]) == 1
    assert "Index the runs named here again" in capsys.readouterr().out
    with intact.begin() as connection:
        connection.execute(text("UPDATE indexes SET examples = examples - 1"))


PAGE = 4096


def annotated(data: Path) -> Path:
    """A database with labels and a list; returns its file."""
    database = made_up_database(data, sqlite_url(data))
    with writing(database) as session:
        for expert in range(100):
            annotations.set_label(session, "first", expert, f"label {expert}")
        annotations.make_list(session, "first", "foxes", [3, 1])
    with database.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    database.dispose()
    return data / "mxd.sqlite"


def spoil(file: Path, page: int) -> bytes:
    """Overwrite a page of a file. Returns the content."""
    content = file.read_bytes()
    file.write_bytes(content[: page * PAGE] + b"\xff" * PAGE + content[(page + 1) * PAGE :])
    return file.read_bytes()


def test_labels_and_lists_of_a_damaged_file_are_saved(tmp_path: Path, capsys: Capture) -> None:
    file, rescued = annotated(tmp_path), tmp_path / "rescued.sqlite"
    words = ["database", "rescue", str(rescued), "--data", str(tmp_path)]
    with opened(f"sqlite:///{file}") as database, database.connect() as connection:
        root = connection.exec_driver_sql("SELECT rootpage FROM sqlite_master WHERE name = 'examples'").scalar_one()
    before = spoil(file, root - 1)
    assert mxd(["database", "check", "--data", str(tmp_path)]) == 1
    assert "mxd database rescue NEW.sqlite" in capsys.readouterr().out
    assert mxd(words) == 0
    assert file.read_bytes() == before
    with opened(f"sqlite:///{rescued}") as database, reading(database) as session:
        assert annotations.labels_of(session, "first") == {expert: f"label {expert}" for expert in range(100)}
        ((record, size),) = annotations.lists_with_counts(session, "first")
        assert (record.name, size) == ("foxes", 2)
    rescued.write_text("mine")
    assert "Choose a new file" in rejected(capsys, *words)
    assert rescued.read_text() == "mine"
    rescued.unlink()
    spoil(file, before.rindex(b"label 50") // PAGE)
    assert mxd(words) == 0, "a damaged table gives its readable rows"


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_disk_space_is_reclaimed(kind: str, tmp_path: Path, postgresql_server: Server, capsys: Capture) -> None:
    database = made_up_database(tmp_path, sqlite_url(tmp_path) if kind == "sqlite" else postgresql_server.new())
    url = database.url.render_as_string(hide_password=False)
    for content in ("".join(chr(33 + n % 90) for n in range(10**6)), ""):
        with database.begin() as connection:
            connection.execute(text("UPDATE runs SET text = :content"), {"content": content})
    with opened(url) as other, database.connect() as connection:
        connection.execute(text("UPDATE runs SET text = 'x'"))
        with pytest.raises(UserError, match="Another program is writing"):
            compact_database(other)
    database.dispose()
    done = document(capsys, "database", "compact", "--database", url)
    assert min(done.values()) > 0
    assert kind == "postgresql" or done["bytes_after"] < done["bytes_before"] - 10**6


NEWEST, OWN = (tables.newest for tables in OWNERS)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path, postgresql_server: Server) -> str:
    url = sqlite_url(tmp_path) if request.param == "sqlite" else postgresql_server.new()
    engine = made_up_database(tmp_path / "data", url)
    with writing(engine) as session:
        set_label(session, "first", 3, "before")
    engine.dispose()
    return url


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> OwnedTables:
    """The trainer's tables with one more column in a table that others refer to, which the program then expects."""
    metadata = MetaData()
    for table in OF_TRAINER.metadata.sorted_tables:
        table.to_metadata(metadata)
    metadata.tables["runs"].append_column(Column("comment", Text))
    return use(monkeypatch, replace(OF_TRAINER, metadata=metadata, newest=NEWEST + 1))


def use(monkeypatch: pytest.MonkeyPatch, tables: OwnedTables) -> OwnedTables:
    monkeypatch.setattr(trainer_open, "OF_TRAINER", tables)
    monkeypatch.setattr(maintenance, "OWNERS", (tables, OWNERS[1]))
    return tables


TABLES = ("runs", "metrics", "indexes", "experts", "examples", "sequences", "labels")


def test_an_upgrade_adds_what_is_missing_and_keeps_every_row(url: str, newer: OwnedTables) -> None:
    with pytest.raises(UserError, match="older version of MxD Explorer"):
        open_database(url)
    before = {table: stored_rows(url, table) for table in TABLES}
    assert all(before.values())
    assert upgrade_database(url) == UpgradeResult(NEWEST, OWN, NEWEST + 1, OWN)
    after = {table: stored_rows(url, table) for table in TABLES}
    assert [row[:-1] for row in after.pop("runs")] == before.pop("runs")
    assert after == before
    engine = open_database(url)
    assert "comment" in {column["name"] for column in inspect(engine).get_columns("runs")}
    engine.dispose()
    assert upgrade_database(url) == UpgradeResult(NEWEST + 1, OWN, NEWEST + 1, OWN)


def test_an_upgrade_of_the_annotations_alone_is_reported(tmp_path: Path, capsys: Capture) -> None:
    database = sqlite_url(tmp_path)
    with pytest.raises(NotFoundError, match="No database at"):
        upgrade_database(database)
    assert list(tmp_path.iterdir()) == []
    made_up_database(tmp_path / "data", database).dispose()
    with closing(sqlite3.connect(tmp_path / "mxd.sqlite")) as connection, connection:
        connection.execute("ALTER TABLE sessions DROP COLUMN result")
        connection.execute("UPDATE backend_version SET version_num = '2'")
    for sentence in (f"Upgraded the tables of annotations from version 2 to {OWN}.", "Nothing was changed."):
        assert sentence in output(capsys, "database", "upgrade", "--database", database)


@pytest.mark.parametrize("tables", OWNERS, ids=lambda tables: tables.owner)
def test_a_newer_database_is_rejected_and_unchanged(tables: OwnedTables, url: str) -> None:
    engine = connect(url)
    with engine.begin() as connection:
        connection.execute(tables.table.update().values(version_num="99"))
    engine.dispose()
    for attempt in (open_database, upgrade_database):
        with pytest.raises(UserError, match="newer version of MxD Explorer"):
            attempt(url)
    assert stored_rows(url, tables.table.name) == [("99",)]


def test_a_failed_upgrade_changes_nothing(url: str, newer: OwnedTables, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(connection: Connection) -> None:
        connection.execute(text("UPDATE runs SET text = 'x'"))
        raise MemoryError

    use(monkeypatch, replace(newer, change=fail))
    before = stored_rows(url, "runs")
    with pytest.raises(MemoryError):
        upgrade_database(url)
    assert stored_rows(url, "runs") == before
    assert stored_rows(url, "trainer_version") == [(str(NEWEST),)]
    if url.startswith("sqlite"):  # PostgreSQL accepts no dangling rows
        use(monkeypatch, newer)
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute("UPDATE metrics SET run_id = run_id + 99")
        with pytest.raises(UserError, match="The database was not changed"):
            upgrade_database(url)
        assert stored_rows(url, "trainer_version") == [(str(NEWEST),)]


def test_counts_may_exceed_32_bits(url: str) -> None:
    many = 3_000_000_000_000
    with opened(url) as engine, writing(engine) as session:
        session.execute(update(RunRecord).values(parameters=many, target_tokens=many, trained_tokens=many))
        session.execute(update(MetricRecord).values(tokens=many))
        session.execute(update(IndexRecord).values(tokens=many, examples=many))
        session.execute(update(ExpertRecord).values(active_tokens=many))
        session.flush()
        examples = count_examples(session)
    assert (examples % many, type(examples)) == (0, int)


def test_an_upgraded_database_has_the_tables_of_a_new_one(url: str) -> None:
    def tables(engine: Engine) -> dict[str, object]:
        seen = inspect(engine)
        return {
            name: [(column["name"], str(column["type"]), column["nullable"]) for column in seen.get_columns(name)]
            + sorted(str(index["name"]) for index in seen.get_indexes(name))
            for name in seen.get_table_names()
        }

    engine = connect(url)
    newest = tables(engine)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE recurrences"))
        connection.execute(text("CREATE INDEX experts_by_entropy ON experts (run_id, entropy, expert)"))
        connection.execute(text("ALTER TABLE examples RENAME COLUMN activation TO coefficient"))
        connection.execute(text("ALTER TABLE measurements DROP COLUMN created_at"))
        connection.execute(text("ALTER TABLE experts DROP COLUMN steerability"))
        connection.execute(text("ALTER TABLE sessions DROP COLUMN text"))
        connection.execute(text("ALTER TABLE sessions DROP COLUMN result"))
        for tables_of in OWNERS:
            connection.execute(tables_of.table.update().values(version_num="1"))
    assert upgrade_database(url) == UpgradeResult(1, 1, NEWEST, OWN)
    assert tables(engine) == newest
    keys = inspect(engine).get_pk_constraint("recurrences")["constrained_columns"]
    assert keys == ["run_id", "expert", "other_run"]
    engine.dispose()


@pytest.mark.parametrize("spoils_packed", [True, False])
def test_damaged_database(spoils_packed: bool, tmp_path: Path, capsys: Capture) -> None:
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
    assert mxd(["database", "check", "--data", str(tmp_path)]) in (1, 2)
    assert "damaged" in "".join(capsys.readouterr())


def test_a_label_change_is_detected_after_the_clock_was_set_back(own: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = []
    for label, days in (("before", 0), ("after", 400)):
        now = utc_now() - timedelta(days=days)
        monkeypatch.setattr("mxd.backend.database.annotations.utc_now", lambda now=now: now)
        with writing(own) as session:
            annotations.set_label(session, "first", 3, label)
            stamps.append(annotations.labels_stamp(session, "first"))
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


LABEL = "/api/runs/first/experts/1"
WRITERS = 60
"""More than the server has threads and connections."""
LIMIT_SECONDS = 1.0
TIMEOUT_SECONDS = 20.0


@pytest.fixture
def waiting_client(own_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """A client of a server that waits for at most a second, and for a connection 2."""
    monkeypatch.setattr("mxd.trainer.storage.database.engine.CONNECT_SECONDS", 2)  # the least that psycopg waits
    limits = {"write_seconds": LIMIT_SECONDS, "statement_seconds": LIMIT_SECONDS}
    with TestClient(create_app(own_settings.model_copy(update=limits))) as client:
        yield client


def test_waiting_writers_do_not_block_readers(waiting_client: TestClient, own: Engine) -> None:
    assert waiting_client.get("/api/runs").status_code == 200

    def write(_number: int) -> tuple[int, bool]:
        answer = waiting_client.patch(LABEL, json={"label": "x"})
        return answer.status_code, "retry-after" in answer.headers

    with ThreadPoolExecutor(WRITERS) as pool, own.connect() as connection:
        is_sqlite = own.dialect.name == "sqlite"
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_sqlite else "LOCK TABLE labels IN EXCLUSIVE MODE")
        written = pool.map(write, range(WRITERS), timeout=TIMEOUT_SECONDS)
        started = time.monotonic()
        for path in ("/api/runs", "/api/runs/first", "/api/health"):
            assert waiting_client.get(path).status_code == 200
        assert time.monotonic() - started < TIMEOUT_SECONDS
        assert set(written) == {(503, True)}
    assert waiting_client.patch(LABEL, json={"label": "x"}).status_code == 204


def test_a_frozen_database_is_unavailable(
    own: Engine, waiting_client: TestClient, request: pytest.FixtureRequest
) -> None:
    if own.dialect.name != "postgresql":
        return
    assert waiting_client.get("/api/runs").status_code == 200
    server: Server = request.getfixturevalue("postgresql_server")
    assert server._process is not None
    processes = [psutil.Process(server._process.pid), *psutil.Process(server._process.pid).children(recursive=True)]

    def tell(sent: signal.Signals) -> None:
        for process in processes:
            with suppress(psutil.NoSuchProcess):  # a worker of autovacuum ends at any moment
                process.send_signal(sent)

    tell(signal.SIGSTOP)
    try:
        started = time.monotonic()
        answer = waiting_client.get("/api/runs")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "database-unavailable")
        assert time.monotonic() - started < TIMEOUT_SECONDS
    finally:
        tell(signal.SIGCONT)
    assert waiting_client.get("/api/runs").status_code == 200
