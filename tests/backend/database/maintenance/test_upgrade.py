"""Upgrades from an older schema version, with a made-up newer revision."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, inspect, text, update
from sqlalchemy.orm import Session

from mxd.backend.cli.main import run
from mxd.backend.database import maintenance
from mxd.backend.database.annotations import set_label
from mxd.backend.database.engine import open_database
from mxd.backend.database.maintenance import CHAINS, UpgradeResult, upgrade_database
from mxd.backend.queries.runs import count_examples
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.storage.database import open as trainer_open
from mxd.trainer.storage.database.engine import connect
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import MigrationChain, sqlite_url, writing
from mxd.trainer.storage.database.tables import IndexRecord, MetricRecord, RunRecord
from tests.helpers.databases import made_up_database
from tests.helpers.servers.postgresql import Server

NEWEST, OWN = (chain.newest for chain in CHAINS)
REVISION = f'''
"""A new column in a table that other tables refer to."""
import sqlalchemy as sa
from alembic import op

revision = "{NEWEST + 1}"
down_revision = "{NEWEST}"


def upgrade():
    with op.batch_alter_table("runs") as table:
        table.add_column(sa.Column("comment", sa.Text))
        table.alter_column("name", type_=sa.String(300))
'''


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path, postgresql_server: Server) -> str:
    url = sqlite_url(tmp_path) if request.param == "sqlite" else postgresql_server.new()
    engine = made_up_database(tmp_path / "data", url)
    with writing(engine) as session:
        set_label(session, "first", 3, "before")
    engine.dispose()
    return url


@pytest.fixture
def newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MigrationChain:
    """The trainer's chain with one more revision, which the program then expects."""
    trainer, backend = CHAINS
    scripts = tmp_path / "migrations"
    shutil.copytree(trainer.scripts, scripts)
    (scripts / "versions" / f"version_{NEWEST + 1}.py").write_text(REVISION)
    chain = replace(trainer, scripts=scripts, newest=NEWEST + 1)
    monkeypatch.setattr(trainer_open, "CHAIN", chain)
    monkeypatch.setattr(maintenance, "CHAINS", (chain, backend))
    return chain


def rows(url: str, table: str) -> list[list[Any]]:
    """Return all rows of a table."""
    engine = connect(url)
    with engine.connect() as connection:
        found = [list(row) for row in connection.execute(text(f"SELECT * FROM {table}"))]
    engine.dispose()
    return found


TABLES = ("runs", "metrics", "indexes", "experts", "examples", "sequences", "labels")


def test_an_upgrade_runs_the_missing_revisions_and_keeps_every_row(url: str, newer: MigrationChain) -> None:
    with pytest.raises(UserError, match="older version of MxD Explorer"):
        open_database(url)
    before = {table: rows(url, table) for table in TABLES}
    assert all(before.values())
    assert upgrade_database(url) == UpgradeResult(NEWEST, OWN, NEWEST + 1, OWN)
    after = {table: rows(url, table) for table in TABLES}
    assert [row[:-1] for row in after.pop("runs")] == before.pop("runs")
    assert after == before
    engine = open_database(url)
    assert "comment" in {column["name"] for column in inspect(engine).get_columns("runs")}
    engine.dispose()
    assert upgrade_database(url) == UpgradeResult(NEWEST + 1, OWN, NEWEST + 1, OWN)


def test_an_upgrade_of_the_annotations_alone_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = sqlite_url(tmp_path)
    made_up_database(tmp_path / "data", database).dispose()
    with closing(sqlite3.connect(tmp_path / "mxd.sqlite")) as connection, connection:
        connection.execute("ALTER TABLE sessions DROP COLUMN text")
        connection.execute("UPDATE backend_version SET version_num = '1'")
    for sentence in (f"Upgraded the tables of annotations from version 1 to {OWN}.", "Nothing was changed."):
        assert run(["database", "upgrade", "--database", database]) == 0
        assert sentence in capsys.readouterr().out


def test_a_failed_upgrade_changes_nothing(url: str, newer: MigrationChain) -> None:
    revision = newer.scripts / "versions" / f"version_{NEWEST + 1}.py"
    revision.write_text(REVISION + "    raise MemoryError\n")
    before = rows(url, "runs")
    with pytest.raises(MemoryError):
        upgrade_database(url)
    assert rows(url, "runs") == before
    assert rows(url, "trainer_version") == [[str(NEWEST)]]


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.owner)
def test_a_newer_database_is_rejected_and_unchanged(chain: MigrationChain, url: str) -> None:
    engine = connect(url)
    with engine.begin() as connection:
        connection.execute(chain.table.update().values(version_num="99"))
    engine.dispose()
    for attempt in (open_database, upgrade_database):
        with pytest.raises(UserError, match="newer version of MxD Explorer"):
            attempt(url)
    assert rows(url, chain.table.name) == [["99"]]


def test_a_missing_database_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="No database at"):
        upgrade_database(sqlite_url(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_dangling_rows_stop_the_upgrade(tmp_path: Path, newer: MigrationChain) -> None:
    url = sqlite_url(tmp_path)
    created = replace(CHAINS[0], newest=NEWEST)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer_open, "CHAIN", created)
        made_up_database(tmp_path / "data", url).dispose()
    with closing(sqlite3.connect(tmp_path / "mxd.sqlite")) as connection, connection:
        connection.execute("UPDATE metrics SET run_id = run_id + 99")
    with pytest.raises(UserError, match="The database was not changed"):
        upgrade_database(url)
    assert rows(url, "trainer_version") == [[str(NEWEST)]]


def test_counts_may_exceed_32_bits(url: str) -> None:
    many = 3_000_000_000_000
    engine = open_database(url)
    with writing(engine) as session:
        session.execute(update(RunRecord).values(parameters=many, target_tokens=many, trained_tokens=many))
        session.execute(update(MetricRecord).values(tokens=many))
        session.execute(update(IndexRecord).values(tokens=many, examples=many))
        session.execute(update(ExpertRecord).values(active_tokens=many))
    with Session(engine) as session:
        examples = count_examples(session)
        assert (examples % many, type(examples)) == (0, int)
    engine.dispose()


def test_an_upgraded_database_has_the_tables_of_a_new_one(url: str) -> None:
    def tables(engine: Engine) -> dict[str, list[tuple[str, str, bool]]]:
        seen = inspect(engine)
        return {
            name: [(column["name"], str(column["type"]), column["nullable"]) for column in seen.get_columns(name)]
            for name in seen.get_table_names()
        }

    engine = connect(url)
    newest = tables(engine)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE recurrences"))
        connection.execute(text("DROP INDEX experts_by_steerability"))
        connection.execute(text("ALTER TABLE experts DROP COLUMN steerability"))
        connection.execute(text("ALTER TABLE sessions DROP COLUMN text"))
        for chain in CHAINS:
            connection.execute(chain.table.update().values(version_num="1"))
    assert upgrade_database(url) == UpgradeResult(1, 1, NEWEST, OWN)
    assert tables(engine) == newest
    keys = inspect(engine).get_pk_constraint("recurrences")["constrained_columns"]
    assert keys == ["run_id", "expert", "other_run"]
    engine.dispose()
