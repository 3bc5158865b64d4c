"""Opening a database with the trainer's tables, and deleting measurements of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, delete, update
from sqlalchemy.orm import Session

from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.engine import DEFAULT_CONNECTIONS, ConnectionConfig, connect
from mxd.trainer.storage.database.migrations import CHAIN
from mxd.trainer.storage.database.search import delete_search, prepare_search
from mxd.trainer.storage.database.tables import (
    AblationRecord,
    AutomaticLabelRecord,
    Base,
    ExampleRecord,
    ExpertRecord,
    IndexRecord,
    MeasurementRecord,
    RecurrenceRecord,
    RoutedRecord,
    SequenceRecord,
    SteeringStrengthRecord,
)
from mxd.trainer.storage.database.versions import prepare

IN_MEMORY = "sqlite://"
"""URL of a database that disappears with the process."""


def sqlite_url(data: Path) -> str:
    """Return the URL of the SQLite file in the data folder ``data``."""
    return f"sqlite:///{(data / 'mxd.sqlite').resolve()}"


def open_trainer_database(url: str, config: ConnectionConfig = DEFAULT_CONNECTIONS) -> Engine:
    """Open a database by its SQLAlchemy ``url`` and create the trainer's tables if it is new.

    Raises:
        UserError: it is not a database, has another schema version, or cannot be opened.
    """
    engine = connect(url, config)
    try:
        prepare(engine, CHAIN, _create_tables)
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


def delete_index(session: Session, run_id: int) -> None:
    """Delete a run's index and everything measured on it, in the caller's transaction."""
    delete_search(session, run_id)
    for table in (
        RoutedRecord,
        AutomaticLabelRecord,
        MeasurementRecord,
        RecurrenceRecord,
        SteeringStrengthRecord,
        AblationRecord,
        ExampleRecord,
        SequenceRecord,
        ExpertRecord,
        IndexRecord,
    ):
        session.execute(delete(table).where(table.run_id == run_id))


def delete_ablations(session: Session, run_id: int, experts: Collection[int] | None = None) -> None:
    """Delete the ablation and amplification effects of some or all experts of a run, in the caller's transaction."""
    ablations, rows = delete(AblationRecord), update(ExpertRecord)
    if experts is not None:
        ablations = ablations.where(AblationRecord.expert.in_(experts))
        rows = rows.where(ExpertRecord.expert.in_(experts))
    session.execute(ablations.where(AblationRecord.run_id == run_id))
    zeros = dict.fromkeys(("loss_increase", "kl_amplified", "output_share", "input_dependence"), 0.0)
    session.execute(rows.where(ExpertRecord.run_id == run_id).values(**zeros))
