"""Opening a database with the trainer's tables, their versions and upgrades, and deleting measurements of a run.

Each owner of tables (trainer, backend) has a version table. A new database gets the newest tables at once. An older one
changes only with ``mxd database upgrade``.
"""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    delete,
    inspect,
    select,
    update,
)
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session
from sqlalchemy.schema import CreateColumn

from mxd.trainer.errors import DamagedDatabaseError, UserError
from mxd.trainer.storage.database.engine import (
    DEFAULT_CONNECTIONS,
    ConnectionConfig,
    cannot_open,
    connect,
    is_writable,
    schema_transaction,
)
from mxd.trainer.storage.database.expert_columns import ABLATION_COLUMNS, ExpertRecord
from mxd.trainer.storage.database.search import delete_search, prepare_search
from mxd.trainer.storage.database.tables import (
    AblationRecord,
    AutomaticLabelRecord,
    Base,
    ExampleRecord,
    IndexRecord,
    MeasurementRecord,
    RecurrenceRecord,
    RoutedRecord,
    SequenceRecord,
    SteeringStrengthRecord,
)


@dataclass(frozen=True)
class OwnedTables:
    """All tables of one owner."""

    owner: str
    """Prefix of the version table: ``trainer`` or ``backend``."""
    metadata: MetaData
    newest: int
    """The version that this program reads and writes."""
    change: Callable[[Connection], None] = lambda _: None
    """Changes tables of any older version as new tables and columns do not."""

    @property
    def table(self) -> Table:
        name = f"{self.owner}_version"
        key = PrimaryKeyConstraint("version_num", name=f"{name}_pkc")
        return Table(name, MetaData(), Column("version_num", String(32), nullable=False), key)


def read_version(connection: Connection, tables: OwnedTables) -> int:
    """Return the version of an owner's tables; 0 if the database has none."""
    table = tables.table
    if not inspect(connection).has_table(table.name):
        return 0
    return int(connection.scalar(select(table.c.version_num)) or 0)


def prepare(engine: Engine, tables: OwnedTables, create_tables: Callable[[Connection], None]) -> None:
    """Create an owner's tables in a new database, or check the version of the existing ones. Raises UserError if the
    tables have another version, the database cannot be opened, or it is not one of ours."""
    try:
        with engine.connect() as connection:
            if engine.dialect.name == "sqlite":
                check_schema(connection, engine.url.database)
            version = read_version(connection, tables)
        if not version:
            with schema_transaction(engine) as connection:
                # Check again under the lock: another process may have created them.
                if not read_version(connection, tables):
                    create_tables(connection)
                    tables.table.create(connection)
                    connection.execute(tables.table.insert().values(version_num=str(tables.newest)))
    except DatabaseError as error:
        raise cannot_open(engine.url, error) from error
    if version:
        check_version(version, tables)


def check_schema(connection: Connection, file: str | None) -> None:
    """Check an SQLite file that somebody else may have made. Raises UserError if it has triggers or views, of which we
    make none and which could run when tables are used."""
    query = "SELECT type || ' ' || name FROM sqlite_master WHERE type IN ('trigger', 'view') LIMIT 1"
    found = connection.exec_driver_sql(query).scalar()
    if found is not None:
        raise UserError(f"The database {file} was not made by this program: it has the {found}. Use another file.")


def check_foreign_file(engine: Engine) -> None:
    """Check the structure of an SQLite file that belongs to another user or may only be read, in about a second per 300
    MB. Our own files are checked by ``mxd database check``. Raises DamagedDatabaseError if it is damaged."""
    with engine.connect() as connection:
        if engine.dialect.name != "sqlite":
            return
        opened = connection.exec_driver_sql("PRAGMA database_list")
        file = Path(next(path for _, name, path in opened if name == "main"))
        if file.is_file() and not (is_writable(file) and (os.name != "posix" or file.stat().st_uid == os.geteuid())):
            try:
                finding = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
            except DatabaseError as error:
                raise DamagedDatabaseError from error
            if finding != "ok":
                raise DamagedDatabaseError


def check_version(version: int, tables: OwnedTables) -> None:
    """Check that this program can use tables of ``version``. Raises UserError if the version is older or newer; the
    message says what to do."""
    versions = f"its tables have version {version}; this version needs {tables.newest}"
    if version < tables.newest:
        raise UserError(
            f"The database was written by an older version of MxD Explorer ({versions}). "
            "Back it up, then run 'mxd database upgrade'."
        )
    if version > tables.newest:
        raise UserError(
            f"The database was written by a newer version of MxD Explorer ({versions}). "
            "Install that version, or choose another database with --database."
        )


def upgrade(connection: Connection, tables: OwnedTables) -> None:
    """Upgrade an owner's tables of any older version, in the caller's transaction. New columns stay empty. A database
    without tables gets them when it is opened. Raises UserError if the tables have a newer version."""
    version = read_version(connection, tables)
    check_version(max(version, tables.newest), tables)
    if not version:
        return
    tables.metadata.create_all(connection)
    tables.change(connection)
    for table in tables.metadata.sorted_tables:
        known = {column["name"] for column in inspect(connection).get_columns(table.name)}
        for column in (column for column in table.columns if column.name not in known):
            definition = CreateColumn(column).compile(dialect=connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {definition}")
    connection.execute(tables.table.update().values(version_num=str(tables.newest)))


def _change_older_tables(connection: Connection) -> None:
    """Rename a column that had another name before version 5. Drop the indexes by which experts were ordered before
    version 6."""
    if "coefficient" in {column["name"] for column in inspect(connection).get_columns("examples")}:
        connection.exec_driver_sql("ALTER TABLE examples RENAME COLUMN coefficient TO activation")
    for index in Table("experts", MetaData(), autoload_with=connection, resolve_fks=False).indexes:
        if index.name != "experts_by_density":
            index.drop(connection)


OF_TRAINER = OwnedTables(owner="trainer", metadata=Base.metadata, newest=6, change=_change_older_tables)
IN_MEMORY = "sqlite://"
"""URL of a database that disappears with the process."""


def sqlite_url(data: Path) -> str:
    return sqlite_file_url(data / "mxd.sqlite")


def sqlite_file_url(file: Path) -> str:
    """Return the URL of an SQLite file. ``?``, ``%`` and ``#`` of its path are escaped, where SQLAlchemy needs it."""
    return URL.create("sqlite", database=str(file.resolve())).render_as_string()


def open_trainer_database(url: str, config: ConnectionConfig = DEFAULT_CONNECTIONS) -> Engine:
    """Open a database by its SQLAlchemy ``url`` and create the trainer's tables if it is new. Raises UserError if it is
    not a database, has another schema version, or cannot be opened."""
    engine = connect(url, config)
    try:
        prepare(engine, OF_TRAINER, _create_tables)
    except UserError:
        engine.dispose()
        raise
    return engine


def _create_tables(connection: Connection) -> None:
    Base.metadata.create_all(connection)
    prepare_search(connection)


@contextmanager
def writing(engine: Engine) -> Iterator[Session]:
    """Yield a session whose changes are committed together on exit, or rolled back on an exception."""
    with Session(engine) as session, session.begin():
        if engine.dialect.name == "sqlite":
            # Python's sqlite3 driver starts no transaction for DDL statements. IMMEDIATE, because a transaction that
            # starts by reading cannot be upgraded once another process has written.
            session.connection().exec_driver_sql("BEGIN IMMEDIATE")
        yield session


INDEX_RECORDS = (
    IndexRecord,
    ExpertRecord,
    SequenceRecord,
    ExampleRecord,
    RoutedRecord,
    AutomaticLabelRecord,
    AblationRecord,
    SteeringStrengthRecord,
    RecurrenceRecord,
    MeasurementRecord,
)


def delete_index(session: Session, run_id: int) -> None:
    """Delete a run's index and everything measured on it, in the caller's transaction."""
    delete_search(session, run_id)
    for table in INDEX_RECORDS:
        session.execute(delete(table).where(table.run_id == run_id))


def delete_ablations(session: Session, run_id: int, experts: Collection[int] | None = None) -> None:
    """Delete the ablation and amplification effects of some or all experts of a run, in the caller's transaction."""
    ablations, rows = delete(AblationRecord), update(ExpertRecord)
    if experts is not None:
        ablations = ablations.where(AblationRecord.expert.in_(experts))
        rows = rows.where(ExpertRecord.expert.in_(experts))
    session.execute(ablations.where(AblationRecord.run_id == run_id))
    zeros = dict.fromkeys(ABLATION_COLUMNS, 0.0)
    session.execute(rows.where(ExpertRecord.run_id == run_id).values(**zeros))
