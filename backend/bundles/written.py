"""What people have written about a run's experts, as rows that can be taken to another store; never access tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import Table, select
from sqlalchemy.orm import Session

from backend.lists import EntryRecord, ListRecord
from backend.notes import LabelRecord, NoteRecord
from backend.sessions import SessionRecord
from backend.tags import TagRecord
from trainer.excerpts import batched_rows, insert_checked
from trainer.rows_as_json import as_json, from_json

OF_PEOPLE: dict[str, Table] = {
    record.__tablename__: record.__table__  # type: ignore[misc]
    for record in (LabelRecord, NoteRecord, TagRecord, ListRecord, EntryRecord, SessionRecord)
}
"""Tables of what people add, in an order in which they can be filled."""
LEFT_OUT = frozenset({"run"})


def rows_of_people(session: Session, run: str, table: Table) -> Iterator[dict[str, Any]]:
    """All that a table holds of a run."""
    wanted = select(table).order_by(*table.primary_key.columns)
    if "run" in table.c:
        wanted = wanted.where(table.c.run == run)
    else:
        of_run = select(ListRecord.id).where(ListRecord.run == run)
        wanted = wanted.where(table.c.list_id.in_(of_run))
    for row in session.execute(wanted).mappings():
        yield as_json(table, dict(row), LEFT_OUT)


def insert_written(session: Session, run: str, table: Table, rows: Iterable[object]) -> None:
    """Enter what ``rows_of_people`` gave, of a run of whatever name, into a store that has nothing of people yet.

    Raises:
        UserError: a row is not one of the table.
    """
    named = {"run": run} if "run" in table.c else {}
    for some in batched_rows(rows):
        insert_checked(session, table, [from_json(table, row, LEFT_OUT) | named for row in some])
