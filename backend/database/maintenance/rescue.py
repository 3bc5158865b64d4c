"""Rescue of what users wrote from a damaged SQLite file into a new database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Table
from sqlalchemy.exc import SQLAlchemyError

from mxd.backend.database.engine import OWN_TABLES, opened
from mxd.backend.database.steering_sessions import SessionRecord
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.storage.database.engine import harden_sqlite
from mxd.trainer.storage.database.open import sqlite_file_url, writing


def rescue_annotations(damaged: Path, target: Path) -> dict[str, int]:
    """Copy labels, notes, tags, lists, sessions and access tokens, as far as they can be read.

    The damaged file is only read. Runs are not copied; annotations refer to them by name, and apply again after the
    runs have been indexed into the new database.

    Returns:
        Copied rows by table.

    Raises:
        NotFoundError: there is no file ``damaged``.
        UserError: ``target`` exists.
    """
    if not damaged.is_file():
        raise NotFoundError(f"No database at {damaged}. Choose another folder with --data.")
    if target.exists():
        raise UserError(f"{target} exists. Choose a new file.")
    source = sqlite3.connect(f"file:{quote(str(damaged.resolve()))}?mode=ro", uri=True)
    harden_sqlite(source)
    source.row_factory = sqlite3.Row
    source.text_factory = lambda stored: stored.decode("utf-8", "replace")
    with closing(source), opened(sqlite_file_url(target)) as database:
        return {str(table.name): _copy(source, database, table) for table in _tables()}


def _tables() -> Iterator[Table]:
    for kind in (*OWN_TABLES, SessionRecord):
        table = kind.__table__
        assert isinstance(table, Table)
        yield table


def _copy(source: sqlite3.Connection, database: Any, table: Table) -> int:
    copied = 0
    for row in _readable_rows(source, table.name):
        values = {column.name: row[column.name] for column in table.columns if column.name in row.keys()}  # noqa: SIM118
        names = ", ".join(f'"{name}"' for name in values)
        statement = f'INSERT INTO "{table.name}" ({names}) VALUES ({", ".join("?" * len(values))})'
        with suppress(SQLAlchemyError), writing(database) as session:  # a damaged row may violate a constraint
            session.connection().exec_driver_sql(statement, tuple(values.values()))
            copied += 1
    return copied


def _readable_rows(source: sqlite3.Connection, table: str) -> Iterator[sqlite3.Row]:
    """Yield the rows up to the first damage, then those from the other end."""
    seen: set[int] = set()
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.DatabaseError):
            for row in source.execute(f'SELECT rowid AS "rescued rowid", * FROM "{table}" ORDER BY rowid {order}'):
                if row["rescued rowid"] in seen:
                    break
                seen.add(row["rescued rowid"])
                yield row
