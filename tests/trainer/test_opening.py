"""Stores that cannot be opened are said to be, without their passwords; several programs may open one at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from backend.database import open_database
from tests.postgresql import Server
from trainer.errors import UserError
from trainer.store import SCHEMA_VERSION, open_store


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense:secret", "cannot be read"),
        ("mysql://me:secret@host/x", "not in mysql"),
        ("postgresql+other://me:secret@host/x", "pip install"),
        ("postgresql://me:secret@127.0.0.1:1/x", "see that the server runs"),
    ],
)
def test_what_is_wrong_is_said_without_the_password(url: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        open_store(url)
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_another_schema_version_is_refused(postgresql_server: Server) -> None:
    url = postgresql_server.new()
    store = open_store(url)
    with store.begin() as connection:
        connection.execute(text("UPDATE schema_version SET version = 1"))
    store.dispose()
    with pytest.raises(UserError, match=f"version 1 and this program expects {SCHEMA_VERSION}"):
        open_store(url)


def test_a_new_store_may_be_opened_by_several_at_once(postgresql_server: Server) -> None:
    url = postgresql_server.new()
    with ThreadPoolExecutor(4) as pool:
        for store in pool.map(lambda _: open_database(url), range(4)):
            store.dispose()


def test_a_database_that_is_not_there_is_said_to_be(postgresql_server: Server) -> None:
    with pytest.raises(UserError, match="does not exist"):
        open_store(postgresql_server.url("none"))
