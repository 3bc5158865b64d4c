"""The backend's view of the database: it reads the trainer's tables and writes its own."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from sqlalchemy import (
    ColumnElement,
    Engine,
    LargeBinary,
    PoolProxiedConnection,
    and_,
    delete,
    func,
    select,
    text,
    type_coerce,
)
from sqlalchemy.orm import InstrumentedAttribute, Session

from mxd.backend.database.annotations import EntryRecord, ListRecord, NotesBase
from mxd.backend.errors import BusyError
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.engine import DEFAULT_CONNECTIONS, ConnectionConfig, connect
from mxd.trainer.storage.database.open import OwnedTables, check_foreign_file, open_trainer_database, prepare
from mxd.trainer.storage.database.tables import ExampleRecord, SequenceRecord

OF_BACKEND = OwnedTables(owner="backend", metadata=NotesBase.metadata, newest=3)
OWN_TABLES = tuple(NotesBase.metadata.tables.values())
"""Tables of annotations, sessions and access tokens."""
WRITTEN = tuple(table for table in OWN_TABLES if "run" in table.c)
"""Tables of what users wrote about a run."""


def count_written(session: Session, run: str) -> int:
    counts = (select(func.count()).select_from(table).where(table.c.run == run) for table in WRITTEN)
    return sum(session.scalar(count) or 0 for count in counts)


def remove_written(session: Session, run: str) -> None:
    of_run = select(ListRecord.id).where(ListRecord.run == run)
    session.execute(delete(EntryRecord).where(EntryRecord.list_id.in_(of_run)))
    for table in WRITTEN:
        session.execute(delete(table).where(table.c.run == run))


def open_database(url: str, config: ConnectionConfig = DEFAULT_CONNECTIONS) -> Engine:
    """Open the database at an SQLAlchemy ``url``, creating the backend's tables if missing."""
    engine = open_maybe_damaged(url, config)
    try:
        check_foreign_file(engine)
    except UserError:
        engine.dispose()
        raise
    return engine


def open_maybe_damaged(url: str, config: ConnectionConfig = DEFAULT_CONNECTIONS) -> Engine:
    """Open a database as ``open_database`` does, without a check of its structure."""
    try:
        engine = open_trainer_database(url, config)
    except OSError as error:
        raise UserError(f"Cannot open the database {url}: {error}. Choose another with --database.") from error

    try:
        prepare(engine, OF_BACKEND, NotesBase.metadata.create_all)
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

    def now(self) -> Hashable:
        """Return a value that changes with every commit of any process."""
        if self._engine.dialect.name == "sqlite" and self._engine.url.database:
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
        with self._lock:
            if self._observer is not None:
                self._observer.close()
                self._observer = None


def size_in_bytes(engine: Engine) -> int:
    if engine.dialect.name == "sqlite":
        if not engine.url.database:
            return 0
        paths = (Path(engine.url.database + suffix) for suffix in ("", "-wal"))
        return sum(path.stat().st_size for path in paths if path.is_file())
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())


def among(session: Session, column: InstrumentedAttribute[int], values: Collection[int]) -> ColumnElement[bool]:
    """Return ``column IN values`` for any number of values."""
    if session.get_bind().dialect.name != "sqlite":
        return column.in_(list(values))
    # SQLite limits the number of parameters; a JSON list is one parameter.
    values_table = func.json_each(json.dumps(sorted(values))).table_valued("value")
    return column.in_(select(values_table.c.value))


class StoredExample(NamedTuple):
    """A stored example with its token sequence."""

    expert: int
    bin: int
    rank: int
    sequence: int
    position: int
    activation: float
    active: bytes
    """Packed positions and activations."""
    token_ids: list[int]


PACKED = ("active", "token_ids")
NUMBERS = (getattr(ExampleRecord, name) for name in StoredExample._fields if name not in PACKED)
# Packed: a search reads far more examples than it displays.
PACKED_COLUMNS = (
    type_coerce(ExampleRecord.active, LargeBinary).label("active"),
    type_coerce(SequenceRecord.token_ids, LargeBinary).label("token_ids"),
)
WITH_TOKENS = select(*NUMBERS, *PACKED_COLUMNS).join(
    SequenceRecord,
    and_(SequenceRecord.run_id == ExampleRecord.run_id, SequenceRecord.sequence == ExampleRecord.sequence),
)


WRITERS = 4
"""Requests that write at the same time. SQLite writes one after the other; PostgreSQL may wait for locked rows."""


class WriteAccess:
    """Lets a few requests write at a time. The others wait without a thread or a connection. ``wait_seconds``: longest
    wait for a turn, and then for a lock of another process."""

    def __init__(self, url: str, wait_seconds: float, statement_seconds: float) -> None:
        self._seconds = wait_seconds
        self._turns = asyncio.Semaphore(WRITERS)
        self._engine = connect(
            url,
            ConnectionConfig(
                pool_size=WRITERS,
                max_overflow=0,
                pool_seconds=wait_seconds,
                lock_seconds=wait_seconds,
                statement_seconds=statement_seconds,
            ),
        )

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Engine]:
        """Yield an engine to write with. Raises BusyError if others have been writing for too long."""
        try:
            async with asyncio.timeout(self._seconds):
                await self._turns.acquire()
        except TimeoutError as error:
            raise BusyError("Others are writing to the database. Try again in a moment.", self._seconds) from error
        try:
            yield self._engine
        finally:
            self._turns.release()

    def close(self) -> None:
        self._engine.dispose()
