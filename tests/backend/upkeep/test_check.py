"""A store that is whole is said to be; each kind of damage is found and said in a sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from backend.cli import run as mxd
from backend.database import open_database, reading
from backend.upkeep.check import check_store
from tests.postgresql import Server
from tests.runs import World
from trainer.config import IndexConfig
from trainer.indexing import build_index
from trainer.language_model import LanguageModel
from trainer.registration import register_run
from trainer.run import Run
from trainer.search_text import delete_search
from trainer.store import sqlite_url, writing


@pytest.fixture(params=["sqlite", "postgresql"])
def whole(fitted: World, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A store with an index, to be damaged."""
    server: Server = request.getfixturevalue("postgresql_server")
    store = open_database(sqlite_url(tmp_path) if request.param == "sqlite" else server.new())
    run = Run.load("small", fitted.data)
    register_run(run, store)
    build_index(
        run, IndexConfig(text=fitted.text, tokens=640), LanguageModel.load(run.config.language_model, "cpu"), store
    )
    yield store
    store.dispose()


def findings(store: Engine) -> list[str]:
    """What is found."""
    with reading(store) as session:
        return list(check_store(session, sample=1_000))


DAMAGE = (
    ("DELETE FROM sequences WHERE sequence = (SELECT max(sequence) FROM contexts)", "that is not stored"),
    ("DELETE FROM contexts WHERE expert = (SELECT max(expert) FROM contexts)", "contexts, and there are"),
    ("DELETE FROM experts WHERE active_tokens = 0 OR expert = 3", "experts, and there are"),
    (
        "UPDATE experts SET usage = usage + 0.1",
        "is not their share of the",
    ),
    ("UPDATE contexts SET coefficient = coefficient * 2 WHERE interval = 0 AND rank = 1", "another coefficient"),
    ("UPDATE contexts SET position = 16 WHERE interval = 0 AND rank = 0", "peaks at token 16 of a sequence of 16"),
    ("UPDATE experts SET largest = largest + 1", "does not have its largest coefficient"),
    ("UPDATE experts SET active_tokens = active_tokens + 1 WHERE active_tokens > 0", "do not add up"),
)


def test_what_is_whole_has_no_findings(whole: Engine) -> None:
    assert findings(whole) == []


@pytest.mark.parametrize(("statement", "said"), DAMAGE)
def test_damage_is_found(whole: Engine, statement: str, said: str) -> None:
    with whole.begin() as connection:
        assert connection.execute(text(statement)).rowcount
    assert any(said in it for it in findings(whole)), findings(whole)


@pytest.mark.parametrize("packed", [b"", b"\xff", b"\x05\x01"])
def test_what_cannot_be_unpacked_is_found(whole: Engine, packed: bytes) -> None:
    with whole.begin() as connection:
        connection.execute(text("UPDATE contexts SET active = :packed WHERE rank = 0"), {"packed": packed})
    assert any("cannot be unpacked" in it for it in findings(whole))


def test_missing_words_are_found(whole: Engine) -> None:
    with writing(whole) as session:
        delete_search(session, 1)
    assert any("searchable experts, and there are 0" in it for it in findings(whole))


def test_the_command_says_it_with_its_exit_code(whole: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    url = whole.url.render_as_string(hide_password=False)
    assert mxd(["store", "check", "--store", url, "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert answer["findings"] == []
    with whole.begin() as connection:
        connection.execute(text("UPDATE experts SET largest = largest + 1"))
    assert mxd(["store", "check", "--store", url]) == 1
    assert "Index the runs named here again" in capsys.readouterr().out
