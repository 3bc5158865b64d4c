"""Each kind of damage is reported, labels and lists are rescued from it, and compacting reclaims disk space."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from mxd.backend.cli.main import run as mxd
from mxd.backend.database import annotations as lists
from mxd.backend.database import annotations as notes
from mxd.backend.database.engine import open_database, opened, reading
from mxd.backend.database.maintenance import check_database, compact_database
from mxd.trainer.analysis.indexing.build import build_index
from mxd.trainer.config import IndexConfig
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.database.open import sqlite_url, writing
from mxd.trainer.storage.database.search import delete_search
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import register_run
from tests.helpers.databases import made_up_database
from tests.helpers.runs import World
from tests.helpers.servers.postgresql import Server


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def intact(fitted: World, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A database with an index. Tests roll back their damage."""
    tmp_path, server = tmp_path_factory.mktemp("intact"), request.getfixturevalue("postgresql_server")
    database = open_database(sqlite_url(tmp_path) if request.param == "sqlite" else server.new())
    # A copy, because indexing writes the units of the run.
    shutil.copytree(fitted.data / "runs" / "small", tmp_path / "copy" / "runs" / "small")
    run = Run.load("small", tmp_path / "copy")
    register_run(run, database)
    build_index(
        run, IndexConfig(text=fitted.text, tokens=640), LanguageModel.load(run.config.language_model, "cpu"), database
    )
    yield database
    database.dispose()


def findings(database: Engine, damage: Callable[[Session], object] = lambda _session: None) -> list[str]:
    """Return all findings about a database after some damage, which is rolled back."""
    with reading(database) as session:
        damage(session)
        return list(check_database(session, sample=1_000))


DAMAGE = (
    ("DELETE FROM sequences WHERE sequence = (SELECT max(sequence) FROM examples)", "missing token sequence"),
    ("DELETE FROM examples WHERE expert = (SELECT max(expert) FROM examples)", "examples, found"),
    ("DELETE FROM experts WHERE active_tokens = 0 OR expert = 3", "experts, found"),
    (
        "UPDATE experts SET density = density + 0.1",
        "does not match their active tokens",
    ),
    ("UPDATE examples SET activation = activation * 2 WHERE bin = 0 AND rank = 1", "another activation"),
    ("UPDATE examples SET position = 16 WHERE bin = 0 AND rank = 0", "has position 16 in a sequence of 16 tokens"),
    ("UPDATE experts SET max_activation = max_activation + 1", "does not have its largest activation"),
    ("UPDATE experts SET active_tokens = active_tokens + 1 WHERE active_tokens > 0", "do not add up"),
)


def test_an_intact_database_has_no_findings(intact: Engine) -> None:
    assert findings(intact) == []


@pytest.mark.parametrize(("statement", "problem"), DAMAGE)
def test_damage_is_found(intact: Engine, statement: str, problem: str) -> None:
    found = findings(intact, lambda session: session.execute(text(statement)))
    assert any(problem in it for it in found), found


@pytest.mark.parametrize("packed", [b"", b"\xff", b"\x05\x01"])
def test_undecodable_examples_are_found(intact: Engine, packed: bytes) -> None:
    statement = text("UPDATE examples SET active = :packed WHERE rank = 0")
    found = findings(intact, lambda session: session.execute(statement, {"packed": packed}))
    assert any("cannot be decoded" in it for it in found)


def test_missing_search_documents_are_found(intact: Engine) -> None:
    found = findings(intact, lambda session: delete_search(session, 1))
    assert any("searchable experts, found 0" in it for it in found)


def test_the_command_returns_1_if_there_are_findings(intact: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    url = intact.url.render_as_string(hide_password=False)
    assert mxd(["database", "check", "--database", url, "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert answer["findings"] == []
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


@pytest.fixture(params=["sqlite", "postgresql"])
def filled(tmp_path: Path, request: pytest.FixtureRequest) -> Engine:
    """A database with a megabyte of deleted text."""
    server: Server = request.getfixturevalue("postgresql_server")
    database = made_up_database(tmp_path, sqlite_url(tmp_path) if request.param == "sqlite" else server.new())
    long = "".join(chr(33 + n % 90) for n in range(10**6))
    with database.begin() as connection:
        connection.execute(text("UPDATE runs SET text = :long"), {"long": long})
    with database.begin() as connection:
        connection.execute(text("UPDATE runs SET text = ''"))
    return database


def test_disk_space_is_reclaimed(filled: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    url = filled.url.render_as_string(hide_password=False)
    filled.dispose()
    assert mxd(["database", "compact", "--database", url, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert min(done.values()) > 0
    if filled.dialect.name == "sqlite":
        assert done["bytes_after"] < done["bytes_before"] - 10**6


def test_it_fails_while_another_program_writes(filled: Engine) -> None:
    other = open_database(filled.url.render_as_string(hide_password=False))
    with filled.connect() as connection:
        connection.execute(text("UPDATE runs SET text = 'x'"))
        with pytest.raises(UserError, match="Another program is writing"):
            compact_database(other)
    compact_database(other)
    other.dispose()
    filled.dispose()
