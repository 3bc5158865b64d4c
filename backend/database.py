"""The store as the backend sees it: the trainer's tables to read, its own to write."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from sqlalchemy import Connection, Engine, PoolProxiedConnection, text
from sqlalchemy.orm import Session

from backend import sessions
from backend.access.tokens import AccessTokenRecord
from backend.lists import EntryRecord, ListRecord
from backend.migrations import CHAIN
from backend.notes import LabelRecord, NoteRecord, NotesBase
from backend.tags import TagRecord
from trainer.errors import UserError
from trainer.store import open_store
from trainer.versions import prepare

WRITTEN = (LabelRecord, NoteRecord, TagRecord, ListRecord, EntryRecord, AccessTokenRecord)
"""Tables of what people add."""


def open_database(url: str) -> Engine:
    """The store at an SQLAlchemy ``url``, with the backend's tables in it.

    Raises:
        UserError: it cannot be opened.
    """
    try:
        engine = open_store(url)
    except OSError as error:
        raise UserError(f"The store {url} cannot be opened ({error}); name another with --store.") from error
    try:
        prepare(engine, CHAIN, _create_tables)
    except UserError:
        engine.dispose()
        raise
    return engine


def _create_tables(connection: Connection) -> None:
    tables = [NotesBase.metadata.tables[table.__tablename__] for table in WRITTEN]
    NotesBase.metadata.create_all(connection, tables)
    sessions.create_tables(connection)


@contextmanager
def opened(url: str) -> Iterator[Engine]:
    """The same, let go of at the end. Arguments and errors as ``open_database``."""
    engine = open_database(url)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def reading(engine: Engine) -> Iterator[Session]:
    """A session that sees one state of the store throughout, whatever is written meanwhile."""
    with Session(engine) as session:
        if engine.dialect.name == "sqlite":
            # Python's driver begins no transaction for a SELECT: each would see a state of its own.
            session.connection().exec_driver_sql("BEGIN")
        else:
            session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
        yield session


class StoreVersion:
    """Tells whether anything in a store may have changed, whoever wrote it: what was read before still holds while
    this is the same."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # Asked before every answer: to begin and to end a transaction each time would be two more round trips.
        self._asking = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._lock = Lock()
        self._watching: PoolProxiedConnection | None = None
        self.is_quick = engine.dialect.name == "sqlite" and bool(engine.url.database)
        """Whether it takes microseconds, without a round trip to another process."""

    def now(self) -> Hashable:
        """Something else after every commit of any process."""
        if self.is_quick:
            return self._sqlite_version()
        if self._engine.dialect.name == "postgresql":
            with self._asking.connect() as connection:
                # Which transactions a reader sees: two of the same see the same.
                return str(connection.execute(text("SELECT pg_current_snapshot()")).scalar_one())
        return object()

    def _sqlite_version(self) -> int:
        with self._lock:
            if self._watching is None:
                # It counts what other connections commit; so this one, which is kept, never writes.
                self._watching = self._engine.raw_connection()
            cursor = self._watching.cursor()
            cursor.execute("PRAGMA data_version")
            # All rows: a statement that is not at its end would hold on to the state that it began with.
            return int(cursor.fetchall()[0][0])

    def close(self) -> None:
        """Let go of the store."""
        with self._lock:
            if self._watching is not None:
                self._watching.close()
                self._watching = None


def size_in_bytes(engine: Engine) -> int:
    """Bytes that the store takes on disk."""
    if engine.dialect.name == "sqlite":
        if not engine.url.database:
            return 0
        paths = (Path(engine.url.database + suffix) for suffix in ("", "-wal"))
        return sum(path.stat().st_size for path in paths if path.is_file())
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
