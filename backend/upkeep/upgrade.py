"""Bringing a store that an earlier version of the program wrote up to date: all of it, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, event, inspect, text
from sqlalchemy.exc import DatabaseError

from backend import migrations as of_backend
from trainer import migrations as of_trainer
from trainer.errors import NotFoundError, UserError
from trainer.opening import cannot_open, connect, creating, earlier_version
from trainer.versions import upgrade, version_of

CHAINS = (of_trainer.CHAIN, of_backend.CHAIN)


@dataclass(frozen=True)
class Upgraded:
    """What became of a store."""

    before: int
    """Version of the tables of runs and indexes."""
    after: int
    index_again: tuple[str, ...]
    """Runs whose index was written in a way that cannot be read any more."""


def upgrade_store(url: str) -> Upgraded:
    """Bring the store at an SQLAlchemy ``url`` up to date, in one transaction.

    Raises:
        UserError: it is of a later version, is damaged or cannot be written.
        NotFoundError: there is no store.
    """
    engine = connect(url)
    try:
        _check_there(engine)
        if engine.dialect.name == "sqlite":
            # Written anew, a table is dropped meanwhile, and with foreign keys what belongs to it would be too.
            event.listen(engine, "connect", _without_foreign_keys)
        with creating(engine) as connection:
            return _upgrade(connection)
    except DatabaseError as error:
        raise cannot_open(engine.url, error) from error
    finally:
        engine.dispose()


def _check_there(engine: Engine) -> None:
    place = engine.url.render_as_string()
    if engine.dialect.name == "sqlite" and not Path(engine.url.database or "").is_file():
        raise NotFoundError(f"There is no store at {place}; name one with --store or --data.")


def _without_foreign_keys(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA foreign_keys = OFF")


def _upgrade(connection: Connection) -> Upgraded:
    before = version_of(connection, of_trainer.CHAIN) or earlier_version(connection)
    with _noting_lost_indexes(connection) as lost:
        for chain in CHAINS:
            upgrade(connection, chain)
    if connection.dialect.name == "sqlite" and connection.exec_driver_sql("PRAGMA foreign_key_check").first():
        raise UserError(
            "The store was left as it was: rows of it belong to others that are not there; mxd store check of the "
            "version that wrote it says which."
        )
    return Upgraded(before, version_of(connection, of_trainer.CHAIN), tuple(lost))


@contextmanager
def _noting_lost_indexes(connection: Connection) -> Iterator[list[str]]:
    """Names of the runs that have an index before what is done inside, and none after; filled in on leaving."""
    lost: list[str] = []
    before = _indexed(connection)
    yield lost
    lost += sorted(before - _indexed(connection))


def _indexed(connection: Connection) -> set[str]:
    if not inspect(connection).has_table("indexes"):
        return set()
    return set(connection.scalars(text("SELECT name FROM runs JOIN indexes ON indexes.run_id = runs.id")))
