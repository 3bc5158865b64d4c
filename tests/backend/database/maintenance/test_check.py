"""An intact database has no findings, and each kind of damage is reported."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from mxd.backend.cli.main import run as mxd
from mxd.backend.database.engine import open_database, reading
from mxd.backend.database.maintenance import check_database
from mxd.trainer.analysis.indexing.build import build_index
from mxd.trainer.config import IndexConfig
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.database.open import sqlite_url
from mxd.trainer.storage.database.search import delete_search
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import register_run
from tests.helpers.runs import World


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
