"""Lists of experts: named and ordered, with a note on the list and on each entry."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import DateTime, ForeignKey, String, Text, UniqueConstraint, delete, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from mxd.backend.database.annotations import NotesBase
from mxd.backend.errors import ListNotFoundError
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.tables import utc_now


class ListRecord(NotesBase):
    """A list. Its name is unique within the run."""

    __tablename__ = "lists"

    id: Mapped[int] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(String(200))
    name: Mapped[str] = mapped_column(String(120))
    note: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))

    __table_args__ = (UniqueConstraint("run", "name"),)


class EntryRecord(NotesBase):
    """An expert in a list."""

    __tablename__ = "list_entries"

    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id", ondelete="CASCADE"), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    place: Mapped[int]
    """Sort key within the list. Values need not be consecutive."""
    note: Mapped[str | None] = mapped_column(Text)


def find_list(session: Session, run: str, list_id: int) -> ListRecord:
    """Return a list of a run. Raises ListNotFoundError if the run has no list with this id."""
    record = session.get(ListRecord, list_id)
    if record is None or record.run != run:
        raise ListNotFoundError(f"Run '{run}' has no list {list_id}. It may have been deleted.")
    return record


def make_list(session: Session, run: str, name: str, experts: Sequence[int]) -> ListRecord:
    """Create a list with some experts. Raises UserError if the run already has a list of this name."""
    _check_name(session, run, name)
    now = utc_now()
    record = ListRecord(run=run, name=name, created_at=now, updated_at=now)
    session.add(record)
    session.flush()
    add_entries(session, record, experts)
    return record


def change_list(session: Session, record: ListRecord, name: str | None, note: str | None) -> None:
    """Change a list's name and note. None leaves a value unchanged; an empty note deletes it. Raises UserError if
    another list of the run has this name."""
    if name is not None and name != record.name:
        _check_name(session, record.run, name)
        record.name = name
    if note is not None:
        record.note = note or None
    record.updated_at = utc_now()


def _check_name(session: Session, run: str, name: str) -> None:
    # Not in SQL: SQLite's lower() only handles ASCII.
    names = session.scalars(select(ListRecord.name).where(ListRecord.run == run))
    if name.casefold() in {known.casefold() for known in names}:
        raise UserError(f"A list named '{name}' already exists. Choose another name, or add to that list.")


def delete_list(session: Session, record: ListRecord) -> None:
    """Delete a list and its entries. Labels, notes and tags of its experts are kept."""
    session.execute(delete(EntryRecord).where(EntryRecord.list_id == record.id))
    session.delete(record)


def entries_of(session: Session, record: ListRecord) -> list[EntryRecord]:
    """Return the entries of a list in order."""
    query = select(EntryRecord).where(EntryRecord.list_id == record.id)
    return list(session.scalars(query.order_by(EntryRecord.place, EntryRecord.expert)))


def add_entries(session: Session, record: ListRecord, experts: Sequence[int]) -> None:
    """Append experts to a list. Experts already in it keep their place."""
    existing = {entry.expert for entry in entries_of(session, record)}
    last = session.scalar(select(func.max(EntryRecord.place)).where(EntryRecord.list_id == record.id)) or 0
    fresh = [expert for expert in dict.fromkeys(experts) if expert not in existing]
    session.add_all(
        EntryRecord(list_id=record.id, expert=expert, place=place) for place, expert in enumerate(fresh, start=last + 1)
    )
    record.updated_at = utc_now()


def note_entry(session: Session, record: ListRecord, expert: int, note: str) -> None:
    """Set the note of an entry; an empty note deletes it. Raises ListNotFoundError if the expert is not in the list."""
    entry = session.get(EntryRecord, (record.id, expert))
    if entry is None:
        raise ListNotFoundError(f"Expert {expert} is not in the list '{record.name}'. Add it first.")
    entry.note = note or None
    record.updated_at = utc_now()


def remove_entries(session: Session, record: ListRecord, experts: Sequence[int]) -> None:
    """Remove experts from a list, if present."""
    session.execute(delete(EntryRecord).where(EntryRecord.list_id == record.id, EntryRecord.expert.in_(experts)))
    record.updated_at = utc_now()


def order_entries(session: Session, record: ListRecord, experts: Sequence[int]) -> None:
    """Reorder a list. Raises UserError if ``experts`` are not exactly the list's experts."""
    entries = {entry.expert: entry for entry in entries_of(session, record)}
    if sorted(experts) != sorted(entries):
        raise UserError(f"The list '{record.name}' has changed. Reload it, then reorder it.")
    for place, expert in enumerate(experts, start=1):
        entries[expert].place = place
    record.updated_at = utc_now()


def lists_with_counts(session: Session, run: str) -> list[tuple[ListRecord, int]]:
    """Return a run's lists with their sizes, most recently changed first."""
    count = select(func.count()).where(EntryRecord.list_id == ListRecord.id).scalar_subquery()
    query = select(ListRecord, count).where(ListRecord.run == run)
    return [(record, size) for record, size in session.execute(query.order_by(ListRecord.updated_at.desc()))]


def lists_holding(session: Session, run: str, experts: Collection[int]) -> dict[int, list[tuple[int, str]]]:
    """Return (id, name) of the lists that contain each expert, sorted by name."""
    query = (
        select(EntryRecord.expert, ListRecord.id, ListRecord.name)
        .join(ListRecord, ListRecord.id == EntryRecord.list_id)
        .where(ListRecord.run == run, EntryRecord.expert.in_(list(experts)))
        .order_by(ListRecord.name)
    )
    lists: dict[int, list[tuple[int, str]]] = {expert: [] for expert in experts}
    for expert, number, name in session.execute(query):
        lists[expert].append((number, name))
    return lists


def experts_in(session: Session, run: str, list_id: int) -> set[int]:
    """Return the experts of a list. Raises ListNotFoundError if the run has no list with this id."""
    return {entry.expert for entry in entries_of(session, find_list(session, run, list_id))}
