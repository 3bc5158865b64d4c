"""Let a store take no more room than it needs, and let the database know what is in it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, Engine, select, text
from sqlalchemy.exc import OperationalError

from backend.database import size_in_bytes
from trainer.errors import UserError
from trainer.search_text import compact_search
from trainer.store import IndexRecord

WRITING = "Somebody else is writing to the store; run the same command again when that is done."


@dataclass(frozen=True)
class Compacted:
    """What became of a store."""

    bytes_before: int
    bytes_after: int


def compact_store(store: Engine) -> Compacted:
    """Give back the room of what was deleted, join the pieces of the words' index, and count what is in the tables.

    SQLite writes the file anew, which takes as much room again meanwhile. PostgreSQL's ``VACUUM`` keeps the room for
    what is written next, blocks nobody, and may add a few pages of notes on what is free.

    Raises:
        UserError: somebody else is writing to it, or it has no room to be written anew.
    """
    before = size_in_bytes(store)
    with store.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if store.dialect.name == "sqlite":
            _compact_sqlite(connection)
        else:
            _compact_postgresql(connection)
    return Compacted(before, size_in_bytes(store))


def _compact_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql("PRAGMA busy_timeout = 0")
    try:
        for run_id in connection.scalars(select(IndexRecord.run_id)).all():
            compact_search(connection, run_id)
        connection.exec_driver_sql("VACUUM")
        connection.exec_driver_sql("ANALYZE")
        # Busy where somebody reads: what is in the log is then written into the file when they have gone.
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").all()
    except OperationalError as error:
        if "locked" in str(error.orig) or "busy" in str(error.orig):
            raise UserError(WRITING) from error
        raise UserError(f"The store cannot be written anew ({error.orig}); nothing in it has changed.") from error
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
