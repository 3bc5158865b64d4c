"""Database connections, and the differences between SQLite and PostgreSQL when opening one."""

import json
import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

from mxd.trainer.errors import KEEP_LABELS, DamagedDatabaseError, UserError
from mxd.trainer.storage.database.search import DATABASES

_SCHEMA_LOCK = 6_517_309_914
"""Key of the PostgreSQL advisory lock held while tables are created. Any number that no other program uses."""


CONNECT_SECONDS = 5


@dataclass(frozen=True)
class ConnectionConfig:
    """Number of connections, and how long they wait. The defaults suit a command that runs alone."""

    pool_size: int = 5
    max_overflow: int = 10
    pool_seconds: float = 30.0
    """Longest wait for a free connection, in seconds."""
    lock_seconds: float = 30.0
    """Longest wait for a lock of another process, in seconds."""
    statement_seconds: float | None = None
    """Longest time for a statement of PostgreSQL, in seconds; None for no limit."""


DEFAULT_CONNECTIONS = ConnectionConfig()


def connect(url: str, config: ConnectionConfig = DEFAULT_CONNECTIONS) -> Engine:
    """Return an engine for an SQLAlchemy ``url``. ``postgresql://`` selects the psycopg driver. Raises UserError if the
    URL is invalid, or its database or driver is not supported."""
    location = _parse_url(url)
    if location.get_backend_name() == "sqlite":
        return _connect_sqlite(location, config)
    try:
        return _connect_postgresql(location, config)
    except (ModuleNotFoundError, ArgumentError) as error:
        raise UserError(
            f"The driver for {location} is not installed ({error}). "
            "Install it with: pip install 'mxd-explorer[postgres]'"
        ) from error


def _connect_sqlite(location: URL, config: ConnectionConfig) -> Engine:
    if not location.database or location.database == ":memory:":
        engine = create_engine(location, json_deserializer=_from_json)
    else:
        path = Path(location.database)
        path.parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(location, json_deserializer=_from_json, **_pool_arguments(config))
        event.listen(engine, "do_connect", partial(_open_read_only, path.resolve()))
    event.listen(engine, "connect", partial(_set_sqlite_pragmas, round(config.lock_seconds * 1000)))
    return engine


def _open_read_only(path: Path, _dialect: Any, _record: Any, _args: Any, parameters: Any) -> Any:
    """Open a file that may not be written for reading; None to open it normally."""
    if not path.is_file() or (is_writable(path) and is_writable(path.parent)):
        return None
    # Without write permission SQLite cannot create its lock files. Without a log, no process is writing.
    log = path.with_name(f"{path.name}-wal")
    immutable = "" if log.is_file() and log.stat().st_size else "&immutable=1"
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro{immutable}", uri=True, **parameters)


def is_writable(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _connect_postgresql(location: URL, config: ConnectionConfig) -> Engine:
    # pool_pre_ping replaces connections that were closed by a server restart.
    arguments: dict[str, str | int] = {"connect_timeout": CONNECT_SECONDS}
    if config.statement_seconds is not None and "options" not in location.query:
        limits = {"lock_timeout": config.lock_seconds, "statement_timeout": config.statement_seconds}
        arguments["options"] = " ".join(f"-c {name}={round(seconds * 1000)}" for name, seconds in limits.items())
    engine = create_engine(
        location, pool_pre_ping=True, json_deserializer=_from_json, connect_args=arguments, **_pool_arguments(config)
    )
    if config.statement_seconds is not None:
        event.listen(engine, "do_connect", partial(_connect_with_timeout, config.statement_seconds))
    return engine


def _pool_arguments(config: ConnectionConfig) -> dict[str, Any]:
    return {"pool_size": config.pool_size, "max_overflow": config.max_overflow, "pool_timeout": config.pool_seconds}


def _connect_with_timeout(seconds: float, _dialect: Any, _record: Any, args: Any, parameters: Any) -> Any:
    """Connect so that a server that has stopped without closing its connections does not block the client."""
    from psycopg import Connection, OperationalError
    from psycopg.pq import TransactionStatus

    class TimedConnection(Connection[Any]):
        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
            try:
                return super().wait(gen, interval, seconds + CONNECT_SECONDS if timeout is None else timeout)
            except OperationalError:
                if timeout is None and self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                    self.pgconn.finish()  # SQLAlchemy replaces the connection
                raise

    return TimedConnection.connect(*args, **parameters)


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


def _set_sqlite_pragmas(lock_ms: int, connection: Any, _record: Any) -> None:
    harden_sqlite(connection)
    cursor = connection.cursor()
    for pragma in (f"busy_timeout={lock_ms}", "journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        try:
            cursor.execute(f"PRAGMA {pragma}")
        except UnicodeDecodeError as error:  # SQLite's message quotes the damaged bytes
            raise DamagedDatabaseError from error
    cursor.close()


def harden_sqlite(connection: sqlite3.Connection) -> None:
    """Keep a file that somebody else made from running functions or changing its own schema."""
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)


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
_MESSAGES = {
    "locked|busy|lock timeout|deadlock": "The database is locked by another program. Wait until it has finished, then "
    "try again.",
    "disk is full|disk i/o error|no space left|file too large": "The database cannot be written: its disk is full or "
    "failing. Free some space, then try again.",
    "statement timeout": "The database took too long to answer. Try again in a moment, or ask for less.",
    "readonly|read-only|permission denied": "The database is read-only. Get write permission, or choose another with "
    "--database or MXD_DATABASE.",
    "malformed|not a database|corrupt|could not decode": str(DamagedDatabaseError()),
    "connection (refused|failed|is bad)|the connection is closed|timeout expired|terminating connection": NO_ANSWER,
}
"""Pattern of driver messages -> the message shown instead."""


def database_error_message(error: DBAPIError) -> str | None:
    """Return a message for an error caused by the database itself; None if our statement caused it."""
    if error.connection_invalidated:
        return NO_ANSWER
    driver_message = str(error.orig).lower()
    return next((message for signs, message in _MESSAGES.items() if re.search(signs, driver_message)), None)


def cannot_open(location: URL, error: DBAPIError) -> UserError:
    reason = " ".join(str(error.orig).split())
    if location.get_backend_name() == "sqlite":
        advice = f"Choose another with --database. If the file is damaged: {KEEP_LABELS}"
    elif isinstance(error, OperationalError):
        advice = "Check that the server is running and that database and user exist, or choose another with --database."
    else:
        advice = "Grant the user the right to create tables, or choose another with --database."
    return UserError(f"Cannot open the database {location.render_as_string()}: {reason}. {advice}")
