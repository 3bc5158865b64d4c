"""User annotations of a run's experts as portable rows; never access tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import Table, select
from sqlalchemy.orm import Session

from mxd.backend.database.annotations import LabelRecord, NoteRecord, TagRecord
from mxd.backend.database.lists import EntryRecord, ListRecord
from mxd.backend.database.steering_sessions import SessionRecord
from mxd.trainer.storage.database.rows import as_json, insert_checked

OF_PEOPLE: dict[str, Table] = {
    record.__tablename__: record.__table__  # type: ignore[misc]
    for record in (LabelRecord, NoteRecord, TagRecord, ListRecord, EntryRecord, SessionRecord)
}
"""Tables of user annotations, in insertion order."""
EXCLUDED_COLUMNS = frozenset({"run"})


def rows_of_people(session: Session, run: str, table: Table) -> Iterator[dict[str, Any]]:
    """Return all rows of a run in a table."""
    query = select(table).order_by(*table.primary_key.columns)
    if "run" in table.c:
        query = query.where(table.c.run == run)
    else:
        of_run = select(ListRecord.id).where(ListRecord.run == run)
        query = query.where(table.c.list_id.in_(of_run))
    for row in session.execute(query).mappings():
        yield as_json(table, dict(row), EXCLUDED_COLUMNS)


def insert_written(session: Session, run: str, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
    """Insert decoded rows into a database without annotations, for a run of any name.

    Raises:
        UserError: a row does not match its table.
    """
    named = {"run": run} if "run" in table.c else {}
    insert_checked(session, table, [{**row, **named} for row in rows])
