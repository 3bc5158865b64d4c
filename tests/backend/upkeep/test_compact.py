"""A store gives back the room of what was deleted, unless somebody writes to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from backend.cli import run as mxd
from backend.database import open_database
from backend.upkeep.compact import compact_store
from tests.backend.stores import made_up_store
from tests.postgresql import Server
from trainer.errors import UserError
from trainer.store import sqlite_url


@pytest.fixture(params=["sqlite", "postgresql"])
def filled(tmp_path: Path, request: pytest.FixtureRequest) -> Engine:
    """A store with room that nothing needs any more."""
    server: Server = request.getfixturevalue("postgresql_server")
    store = made_up_store(tmp_path, sqlite_url(tmp_path) if request.param == "sqlite" else server.new())
    long = "".join(chr(33 + n % 90) for n in range(10**6))
    with store.begin() as connection:
        connection.execute(text("UPDATE runs SET text = :long"), {"long": long})
    with store.begin() as connection:
        connection.execute(text("UPDATE runs SET text = ''"))
    return store


def test_room_is_given_back(filled: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    url = filled.url.render_as_string(hide_password=False)
    filled.dispose()
    assert mxd(["store", "compact", "--store", url, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert min(done.values()) > 0
    if filled.dialect.name == "sqlite":
        assert done["bytes_after"] < done["bytes_before"] - 10**6


def test_it_is_refused_while_somebody_writes(filled: Engine) -> None:
    other = open_database(filled.url.render_as_string(hide_password=False))
    with filled.connect() as connection:
        connection.execute(text("UPDATE runs SET text = 'x'"))
        with pytest.raises(UserError, match="Somebody else is writing"):
            compact_store(other)
    compact_store(other)
    other.dispose()
    filled.dispose()
