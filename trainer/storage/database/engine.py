"""Database connections, and the differences between SQLite and PostgreSQL when opening one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

from mxd.trainer.errors import DamagedDatabaseError, UserError
from mxd.trainer.storage.database.search import DATABASES

_SCHEMA_LOCK = 6_517_309_914
"""Key of the PostgreSQL advisory lock held while tables are created. Any number that no other program uses."""


def connect(url: str) -> Engine:
    """Return an engine for an SQLAlchemy ``url``. ``postgresql://`` selects the psycopg driver.

    Raises:
        UserError: the URL is invalid, or its database or driver is not supported.
    """
    location = _parse_url(url)
    if location.get_backend_name() == "sqlite":
        if location.database:
            Path(location.database).parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(location, json_deserializer=_from_json)
        event.listen(engine, "connect", _set_sqlite_pragmas)
        return engine
    try:
        # pool_pre_ping replaces connections that were closed by a server restart.
        return create_engine(location, pool_pre_ping=True, json_deserializer=_from_json)
    except (ModuleNotFoundError, ArgumentError) as error:
        raise UserError(
            f"The driver for {location} is not installed ({error}). "
            "Install it with: pip install 'mxd-explorer[postgres]'"
        ) from error


def _parse_url(url: str) -> URL:
    try:
        location = make_url(url)
    except ArgumentError as error:
        # The URL itself is not quoted: it may hold a password.
        raise UserError("Invalid database URL. Use sqlite:///FILE or postgresql://USER@HOST/DATABASE.") from error
    if location.drivername in ("postgres", "postgresql"):
        return location.set(drivername="postgresql+psycopg")
    if location.get_backend_name() not in DATABASES:
        raise UserError(
            f"Unsupported database: {location.drivername}. Choose an SQLite or PostgreSQL database with --database."
        )
    return location


def _from_json(stored: str) -> Any:
    try:
        return json.loads(stored)
    except (ValueError, RecursionError) as error:
        raise DamagedDatabaseError from error


def _set_sqlite_pragmas(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "busy_timeout=30000"):
        try:
            cursor.execute(f"PRAGMA {pragma}")
        except UnicodeDecodeError as error:  # SQLite's message quotes the damaged bytes
            raise DamagedDatabaseError from error
    cursor.close()


@contextmanager
def schema_transaction(engine: Engine) -> Iterator[Connection]:
    """Yield a connection for creating or changing tables. One transaction, one process at a time."""
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _SCHEMA_LOCK})
        else:
            # Python's sqlite3 driver starts no transaction for DDL statements.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield connection


NO_ANSWER = "The database server does not respond. Check that it is running, then try again."
_MESSAGES: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("locked", "busy", "lock timeout", "deadlock"),
        "The database is locked by another program. Wait until it has finished, then try again.",
    ),
    (
        ("disk is full", "disk i/o error", "no space left", "file too large"),
        "The database cannot be written: its disk is full or failing. Free some space, then try again.",
    ),
    (
        ("readonly", "read-only", "permission denied"),
        "The database is read-only. Get write permission, or choose another with --database or MXD_DATABASE.",
    ),
    (("malformed", "not a database", "corrupt", "could not decode"), str(DamagedDatabaseError())),
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
"""Fragments of driver messages, and the message shown instead."""


def database_error_message(error: DBAPIError) -> str | None:
    """Return a message for an error caused by the database itself; None if our statement caused it."""
    if error.connection_invalidated:
        return NO_ANSWER
    driver_message = str(error.orig).lower()
    return next((message for signs, message in _MESSAGES if any(sign in driver_message for sign in signs)), None)


def cannot_open(location: URL, error: DBAPIError) -> UserError:
    """Return the error to raise when a database cannot be opened."""
    reason = " ".join(str(error.orig).split())
    if location.get_backend_name() == "sqlite":
        advice = "Choose another with --database, or move the file away and index again."
    elif isinstance(error, OperationalError):
        advice = "Check that the server is running and that database and user exist, or choose another with --database."
    else:
        advice = "Grant the user the right to create tables, or choose another with --database."
    return UserError(f"Cannot open the database {location.render_as_string()}: {reason}. {advice}")
