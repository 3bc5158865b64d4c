"""The backend's view of the database: it reads the trainer's tables and writes its own."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from sqlalchemy import Connection, Engine, PoolProxiedConnection, delete, func, select, text
from sqlalchemy.orm import Session

from mxd.backend.database.access_tokens import AccessTokenRecord
from mxd.backend.database.annotations import LabelRecord, NoteRecord, NotesBase, TagRecord
from mxd.backend.database.lists import EntryRecord, ListRecord
from mxd.backend.database.migrations import CHAIN
from mxd.backend.database.steering_sessions import SessionRecord
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.engine import DEFAULT_CONNECTIONS, ConnectionConfig
from mxd.trainer.storage.database.open import check_foreign_file, open_trainer_database, prepare

OWN_TABLES = (LabelRecord, NoteRecord, TagRecord, ListRecord, EntryRecord, AccessTokenRecord, SessionRecord)
"""Tables of annotations, access tokens and sessions."""
WRITTEN = (LabelRecord, NoteRecord, TagRecord, ListRecord, SessionRecord)
"""Tables of what users wrote about a run."""


def count_written(session: Session, run: str) -> int:
    """Return the number of labels, notes, tags, lists and sessions of a run."""
    counts = (select(func.count()).select_from(table).where(table.run == run) for table in WRITTEN)
    return sum(session.scalar(count) or 0 for count in counts)


def remove_written(session: Session, run: str) -> None:
    """Delete all labels, notes, tags, lists and sessions of a run."""
    of_run = select(ListRecord.id).where(ListRecord.run == run)
    session.execute(delete(EntryRecord).where(EntryRecord.list_id.in_(of_run)))
    for table in WRITTEN:
        session.execute(delete(table).where(table.run == run))


def open_database(url: str, config: ConnectionConfig = DEFAULT_CONNECTIONS) -> Engine:
    """Open the database at an SQLAlchemy ``url``, creating the backend's tables if missing. Raises UserError if it
    cannot be opened, DamagedDatabaseError if it is a damaged file of somebody else."""
    engine = open_maybe_damaged(url, config)
    try:
        check_foreign_file(engine)
    except UserError:
        engine.dispose()
        raise
    return engine


def open_maybe_damaged(url: str, config: ConnectionConfig = DEFAULT_CONNECTIONS) -> Engine:
    """Open a database as ``open_database`` does, without a check of its structure. Raises UserError if it cannot be
    opened."""
    try:
        engine = open_trainer_database(url, config)
    except OSError as error:
        raise UserError(f"Cannot open the database {url}: {error}. Choose another with --database.") from error

    def create_tables(connection: Connection) -> None:
        tables = [NotesBase.metadata.tables[table.__tablename__] for table in OWN_TABLES]
        NotesBase.metadata.create_all(connection, tables)

    try:
        prepare(engine, CHAIN, create_tables)
    except UserError:
        engine.dispose()
        raise
    return engine


@contextmanager
def opened(url: str) -> Iterator[Engine]:
    """Open a database as ``open_database`` does, and close it on exit."""
    engine = open_database(url)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def reading(engine: Engine) -> Iterator[Session]:
    """Yield a session that sees one snapshot of the database, whatever is written meanwhile."""
    with Session(engine) as session:
        if engine.dialect.name == "sqlite":
            # Python's sqlite3 driver starts no transaction for SELECT, so each would see another snapshot.
            session.connection().exec_driver_sql("BEGIN")
        else:
            session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
        yield session


class DatabaseVersion:
    """Detects commits by any process, for cache invalidation."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # Read before every response; a transaction would cost two more round trips.
        self._autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._lock = Lock()
        self._observer: PoolProxiedConnection | None = None
        self.is_quick = engine.dialect.name == "sqlite" and bool(engine.url.database)
        """True if ``now`` takes microseconds, without a round trip to a server."""

    def now(self) -> Hashable:
        """Return a value that changes with every commit of any process."""
        if self.is_quick:
            with self._lock:
                if self._observer is None:
                    # data_version counts the commits of other connections, so this one must never write.
                    self._observer = self._engine.raw_connection()
                cursor = self._observer.cursor()
                cursor.execute("PRAGMA data_version")
                # Fetch all rows: an unfinished statement would pin its snapshot.
                return int(cursor.fetchall()[0][0])
        if self._engine.dialect.name == "postgresql":
            with self._autocommit.connect() as connection:
                # The set of visible transactions: equal snapshots see equal data.
                return str(connection.execute(text("SELECT pg_current_snapshot()")).scalar_one())
        return object()

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._observer is not None:
                self._observer.close()
                self._observer = None


def size_in_bytes(engine: Engine) -> int:
    """Return the size of the database on disk, in bytes."""
    if engine.dialect.name == "sqlite":
        if not engine.url.database:
            return 0
        paths = (Path(engine.url.database + suffix) for suffix in ("", "-wal"))
        return sum(path.stat().st_size for path in paths if path.is_file())
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
