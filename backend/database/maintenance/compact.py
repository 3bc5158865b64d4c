"""Reclaim disk space and refresh the query planner's statistics."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, Engine, select, text
from sqlalchemy.exc import OperationalError

from mxd.backend.database.engine import size_in_bytes
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.search import compact_search
from mxd.trainer.storage.database.tables import IndexRecord

WRITING = "Another program is writing to the database. Run the command again when it has finished."


@dataclass(frozen=True)
class CompactResult:
    """Size of the database on disk."""

    bytes_before: int
    bytes_after: int


def compact_database(database: Engine) -> CompactResult:
    """Reclaim the disk space of deleted rows, merge the full-text index and update the planner's statistics.

    SQLite rewrites the file, which temporarily doubles its size. PostgreSQL's ``VACUUM`` keeps the space for new rows
    and does not block other connections.

    Raises:
        UserError: another program is writing to it, or the disk is too full.
    """
    before = size_in_bytes(database)
    with database.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if database.dialect.name == "sqlite":
            _compact_sqlite(connection)
        else:
            _compact_postgresql(connection)
    return CompactResult(before, size_in_bytes(database))


def _compact_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql("PRAGMA busy_timeout = 0")
    try:
        for run_id in connection.scalars(select(IndexRecord.run_id)).all():
            compact_search(connection, run_id)
        connection.exec_driver_sql("VACUUM")
        connection.exec_driver_sql("ANALYZE")
        # Busy while another connection reads; the log is then merged when it closes.
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").all()
    except OperationalError as error:
        if "locked" in str(error.orig) or "busy" in str(error.orig):
            raise UserError(WRITING) from error
        raise UserError(f"Cannot rewrite the database: {error.orig}. Nothing was changed.") from error
    finally:
        connection.exec_driver_sql("PRAGMA busy_timeout = 30000")


def _compact_postgresql(connection: Connection) -> None:
    others = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND backend_xid IS NOT NULL AND pid <> pg_backend_pid()"
    )
    if connection.scalar(others):
        raise UserError(WRITING)
    connection.exec_driver_sql("VACUUM (ANALYZE)")
