"""Lists of experts that people make: named, in an order of their own, with a note on the list and on every entry."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import DateTime, ForeignKey, String, Text, UniqueConstraint, delete, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from backend.errors import ListNotFoundError
from backend.notes import NotesBase
from trainer.errors import UserError
from trainer.store import utc_now


class ListRecord(NotesBase):
    """One list; its name is the only one of its kind in a run."""

    __tablename__ = "lists"

    id: Mapped[int] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(String(200))
    name: Mapped[str] = mapped_column(String(120))
    note: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))

    __table_args__ = (UniqueConstraint("run", "name"),)


class EntryRecord(NotesBase):
    """One expert of a list."""

    __tablename__ = "list_entries"

    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id", ondelete="CASCADE"), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    place: Mapped[int]
    """Ascending along the list; numbers may be missing."""
    note: Mapped[str | None] = mapped_column(Text)


def find_list(session: Session, run: str, list_id: int) -> ListRecord:
    """A list of a run.

    Raises:
        ListNotFoundError: the run has none of this number.
    """
    record = session.get(ListRecord, list_id)
    if record is None or record.run != run:
        raise ListNotFoundError(f"{run} has no list {list_id}; it may have been deleted.")
    return record


def make_list(session: Session, run: str, name: str, experts: Sequence[int]) -> ListRecord:
    """A new list with some experts in it.

    Raises:
        UserError: the run has a list of this name.
    """
    _check_name(session, run, name)
    now = utc_now()
    record = ListRecord(run=run, name=name, created_at=now, updated_at=now)
    session.add(record)
    session.flush()
    add_entries(session, record, experts)
    return record


def change_list(session: Session, record: ListRecord, name: str | None, note: str | None) -> None:
    """Give a list another name, or note; None leaves either as it is, an empty note takes it away.

    Raises:
        UserError: another list of the run has this name.
    """
    if name is not None and name != record.name:
        _check_name(session, record.run, name)
        record.name = name
    if note is not None:
        record.note = note or None
    record.updated_at = utc_now()


def _check_name(session: Session, run: str, name: str) -> None:
    # Not in SQL: SQLite knows small letters of English alone, and would let the same name in twice.
    names = session.scalars(select(ListRecord.name).where(ListRecord.run == run))
    if name.casefold() in {known.casefold() for known in names}:
        raise UserError(f"There is a list named {name} already; choose another name, or add to that one.")


def delete_list(session: Session, record: ListRecord) -> None:
    """Delete a list and its entries; labels, notes and tags of its experts stay."""
    session.execute(delete(EntryRecord).where(EntryRecord.list_id == record.id))
    session.delete(record)


def entries_of(session: Session, record: ListRecord) -> list[EntryRecord]:
    """The entries of a list, in its order."""
    wanted = select(EntryRecord).where(EntryRecord.list_id == record.id)
    return list(session.scalars(wanted.order_by(EntryRecord.place, EntryRecord.expert)))


def add_entries(session: Session, record: ListRecord, experts: Sequence[int]) -> None:
    """Add experts at the end of a list; those that are in it stay where they are."""
    held = {entry.expert for entry in entries_of(session, record)}
    last = session.scalar(select(func.max(EntryRecord.place)).where(EntryRecord.list_id == record.id)) or 0
    fresh = [expert for expert in dict.fromkeys(experts) if expert not in held]
    session.add_all(
        EntryRecord(list_id=record.id, expert=expert, place=place) for place, expert in enumerate(fresh, start=last + 1)
    )
    record.updated_at = utc_now()


def note_entry(session: Session, record: ListRecord, expert: int, note: str) -> None:
    """Say why an expert is in the list; an empty note takes it away.

    Raises:
        ListNotFoundError: it is not in the list.
    """
    entry = session.get(EntryRecord, (record.id, expert))
    if entry is None:
        raise ListNotFoundError(f"Expert {expert} is not in the list {record.name}; add it first.")
    entry.note = note or None
    record.updated_at = utc_now()


def remove_entry(session: Session, record: ListRecord, expert: int) -> None:
    """Take an expert out of a list, if it is in it."""
    session.execute(delete(EntryRecord).where(EntryRecord.list_id == record.id, EntryRecord.expert == expert))
    record.updated_at = utc_now()


def order_entries(session: Session, record: ListRecord, experts: Sequence[int]) -> None:
    """Bring a list into another order.

    Raises:
        UserError: ``experts`` are not those of the list.
    """
    entries = {entry.expert: entry for entry in entries_of(session, record)}
    if sorted(experts) != sorted(entries):
        raise UserError(f"The list {record.name} holds other experts by now; load it again, then order it.")
    for place, expert in enumerate(experts, start=1):
        entries[expert].place = place
    record.updated_at = utc_now()


def lists_with_counts(session: Session, run: str) -> list[tuple[ListRecord, int]]:
    """Lists of a run and how many experts are in each, the last changed first."""
    count = select(func.count()).where(EntryRecord.list_id == ListRecord.id).scalar_subquery()
    wanted = select(ListRecord, count).where(ListRecord.run == run)
    return [(record, size) for record, size in session.execute(wanted.order_by(ListRecord.updated_at.desc()))]


def lists_holding(session: Session, run: str, experts: Collection[int]) -> dict[int, list[tuple[int, str]]]:
    """(number, name) of the lists that each of ``experts`` is in, by name."""
    wanted = (
        select(EntryRecord.expert, ListRecord.id, ListRecord.name)
        .join(ListRecord, ListRecord.id == EntryRecord.list_id)
        .where(ListRecord.run == run, EntryRecord.expert.in_(list(experts)))
        .order_by(ListRecord.name)
    )
    found: dict[int, list[tuple[int, str]]] = {expert: [] for expert in experts}
    for expert, number, name in session.execute(wanted):
        found[expert].append((number, name))
    return found


def experts_in(session: Session, run: str, list_id: int) -> set[int]:
    """Experts of a list.

    Raises:
        ListNotFoundError: the run has none of this number.
    """
    return {entry.expert for entry in entries_of(session, find_list(session, run, list_id))}


def count_of(session: Session, run: str) -> int:
    """Lists that a run has."""
    return session.scalar(select(func.count()).select_from(ListRecord).where(ListRecord.run == run)) or 0


def remove_all(session: Session, run: str) -> None:
    """Delete all lists of a run."""
    for record in session.scalars(select(ListRecord).where(ListRecord.run == run)).all():
        delete_list(session, record)
