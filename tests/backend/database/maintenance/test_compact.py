"""Compacting reclaims disk space, unless another program writes to the database."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from mxd.backend.cli.main import run as mxd
from mxd.backend.database.engine import open_database
from mxd.backend.database.maintenance import compact_database
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.open import sqlite_url
from tests.helpers.databases import made_up_database
from tests.helpers.servers.postgresql import Server


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
