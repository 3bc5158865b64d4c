"""Connecting to the database that a store is in, and what differs from one database to the other in doing so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

from trainer.errors import DamagedStoreError, UserError
from trainer.search_text import DATABASES

_CREATING = 6_517_309_914
"""Number of the advisory lock that whoever creates tables in PostgreSQL holds; any number that others do not use."""


def connect(url: str) -> Engine:
    """An engine for the database at an SQLAlchemy ``url``. ``postgresql://`` means the driver psycopg.

    Raises:
        UserError: it is no such URL, or of a database or driver that cannot be used.
    """
    location = _location(url)
    if location.get_backend_name() == "sqlite":
        if location.database:
            Path(location.database).parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(location, json_deserializer=_from_json)
        event.listen(engine, "connect", _prepare_sqlite)
        return engine
    try:
        # A server that was started anew closed the connections of before; this notices, and opens others.
        return create_engine(location, pool_pre_ping=True, json_deserializer=_from_json)
    except (ModuleNotFoundError, ArgumentError) as error:
        raise UserError(
            f"The store {location} needs a driver that is not installed ({error}); "
            "install psycopg with: pip install 'mxd-explorer[postgres]'"
        ) from error


def _location(url: str) -> URL:
    try:
        location = make_url(url)
    except ArgumentError as error:
        # The text itself is left out: it may hold a password.
        raise UserError(
            "The store's URL cannot be read; write sqlite:///FILE or postgresql://USER@HOST/DATABASE."
        ) from error
    if location.drivername in ("postgres", "postgresql"):
        return location.set(drivername="postgresql+psycopg")
    if location.get_backend_name() not in DATABASES:
        raise UserError(f"A store is in SQLite or PostgreSQL, not in {location.drivername}; name another with --store.")
    return location


def _from_json(stored: str) -> Any:
    try:
        return json.loads(stored)
    except (ValueError, RecursionError) as error:
        raise DamagedStoreError from error


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "busy_timeout=30000"):
        try:
            cursor.execute(f"PRAGMA {pragma}")
        except UnicodeDecodeError as error:  # in the message, which quotes what is damaged
            raise DamagedStoreError from error
    cursor.close()


@contextmanager
def creating(engine: Engine) -> Iterator[Connection]:
    """A connection to create or change tables with, in one transaction; one program does so at a time."""
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _CREATING})
        else:
            # Python's driver begins no transaction for what creates tables: each would be there by itself.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield connection


def earlier_version(connection: Connection) -> int:
    """The version of a store that was written before each owner of tables kept its own; 0 for any other."""
    if connection.dialect.name == "sqlite":
        return int(connection.execute(text("PRAGMA user_version")).scalar_one())
    if not inspect(connection).has_table("schema_version"):
        return 0
    return int(connection.execute(text("SELECT max(version) FROM schema_version")).scalar() or 0)


NO_ANSWER = "The store's database server does not answer; see that it runs, then try again."
_TROUBLE: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("locked", "busy", "lock timeout", "deadlock"),
        "Another program is writing to the store; wait until that is done, then try again.",
    ),
    (
        ("disk is full", "disk i/o error", "no space left", "file too large"),
        "The store cannot be written, as its disk is full or failing; make room, then try again.",
    ),
    (
        ("readonly", "read-only", "permission denied"),
        "The store may not be written; get the right to, or name another with --store or MXD_STORE.",
    ),
    (("malformed", "not a database", "corrupt", "could not decode"), str(DamagedStoreError())),
    (
        (
            "connection refused",
            "connection failed",
            "connection is bad",
            "timeout expired",
            "terminating connection",
        ),
        NO_ANSWER,
    ),
)
"""What a database says, and what to do."""


def trouble_with(error: DBAPIError) -> str | None:
    """What to do where a store that was opened cannot be used; None where the error is none of the store's."""
    if error.connection_invalidated:  # lost while it was used, whatever the driver then says
        return NO_ANSWER
    said = str(error.orig).lower()
    return next((advice for signs, advice in _TROUBLE if any(sign in said for sign in signs)), None)


def cannot_open(location: URL, error: DBAPIError) -> UserError:
    """What to say where a store cannot be opened."""
    why = " ".join(str(error.orig).split())
    if location.get_backend_name() == "sqlite":
        advice = "name another with --store, or move the file away and index again."
    elif isinstance(error, OperationalError):
        advice = "see that the server runs and that the database and the user are there, or name another with --store."
    else:
        advice = "give the user the right to create tables in it, or name another with --store."
    return UserError(f"The store {location.render_as_string()} cannot be opened ({why}); {advice}")
