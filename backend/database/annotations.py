"""User annotations of experts: labels, notes and tags.

They refer to a run by name rather than by id, so they survive indexing or training the run again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from sqlalchemy import DateTime, Index, String, Text, delete, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from mxd.trainer.storage.database.tables import utc_now


class NotesBase(DeclarativeBase):
    """Base class of the backend's tables."""


class LabelRecord(NotesBase):
    """User label of an expert."""

    __tablename__ = "labels"

    run: Mapped[str] = mapped_column(String(200), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    label: Mapped[str] = mapped_column(String(200))
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class NoteRecord(NotesBase):
    """User note on an expert."""

    __tablename__ = "notes"

    run: Mapped[str] = mapped_column(String(200), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    note: Mapped[str] = mapped_column(Text)
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


def labels_of(session: Session, run: str, experts: Collection[int]) -> dict[int, str]:
    """Return the labels of those of ``experts`` that have one."""
    query = select(LabelRecord.expert, LabelRecord.label).where(
        LabelRecord.run == run, LabelRecord.expert.in_(list(experts))
    )
    return {record.expert: record.label for record in session.execute(query)}


def all_labels(session: Session, run: str) -> dict[int, str]:
    """Return all labels of a run."""
    query = select(LabelRecord.expert, LabelRecord.label).where(LabelRecord.run == run)
    return {record.expert: record.label for record in session.execute(query)}


def labels_stamp(session: Session, run: str) -> tuple[int, datetime | None]:
    """Return a value that changes whenever a label of the run changes."""
    query = select(func.count(), func.max(LabelRecord.updated_at)).where(LabelRecord.run == run)
    count, newest = session.execute(query).one()
    return count, newest


def note_of(session: Session, run: str, expert: int) -> str | None:
    """Return the note on an expert, if any."""
    record = session.get(NoteRecord, (run, expert))
    return record.note if record else None


def set_label(session: Session, run: str, expert: int, label: str | None) -> None:
    """Set the label of an expert, or delete it if it is None."""
    if label is None:
        session.execute(delete(LabelRecord).where(LabelRecord.run == run, LabelRecord.expert == expert))
        return
    # Later than all labels of the run even if the clock was set back: labels_stamp relies on it.
    _, newest = labels_stamp(session, run)
    now = utc_now()
    if newest is not None:
        now = max(now, newest.replace(tzinfo=newest.tzinfo or UTC) + timedelta(microseconds=1))
    session.merge(LabelRecord(run=run, expert=expert, label=label, updated_at=now))


def set_note(session: Session, run: str, expert: int, note: str | None) -> None:
    """Set the note on an expert, or delete it if it is None."""
    if note is None:
        session.execute(delete(NoteRecord).where(NoteRecord.run == run, NoteRecord.expert == expert))
    else:
        session.merge(NoteRecord(run=run, expert=expert, note=note, updated_at=utc_now()))


class TagRecord(NotesBase):
    """A tag on an expert."""

    __tablename__ = "tags"

    run: Mapped[str] = mapped_column(String(200), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    tag: Mapped[str] = mapped_column(String(60), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))

    __table_args__ = (Index("experts_of_tag", "run", "tag", "expert"),)


def add_tag(session: Session, run: str, expert: int, tag: str) -> None:
    """Add a tag to an expert (idempotent)."""
    if session.get(TagRecord, (run, expert, tag)) is None:
        session.add(TagRecord(run=run, expert=expert, tag=tag, created_at=utc_now()))


def remove_tag(session: Session, run: str, expert: int, tag: str) -> None:
    """Remove a tag from an expert, if present."""
    session.execute(delete(TagRecord).where(TagRecord.run == run, TagRecord.expert == expert, TagRecord.tag == tag))


def tags_of(session: Session, run: str, experts: Collection[int]) -> dict[int, tuple[str, ...]]:
    """Return the tags of those of ``experts`` that have any, in alphabetical order."""
    found: dict[int, list[str]] = defaultdict(list)
    mine = (TagRecord.run == run, TagRecord.expert.in_(list(experts)))
    for expert, tag in session.execute(select(TagRecord.expert, TagRecord.tag).where(*mine).order_by(TagRecord.tag)):
        found[expert].append(tag)
    return {expert: tuple(names) for expert, names in found.items()}


def tag_counts(session: Session, run: str) -> list[tuple[str, int]]:
    """Return (tag, number of experts) for each tag of a run, in alphabetical order."""
    query = select(TagRecord.tag, func.count()).where(TagRecord.run == run).group_by(TagRecord.tag)
    return [(tag, count) for tag, count in session.execute(query.order_by(TagRecord.tag))]


def tagged(session: Session, run: str, tag: str) -> set[int]:
    """Return the experts that have a tag."""
    return set(session.scalars(select(TagRecord.expert).where(TagRecord.run == run, TagRecord.tag == tag)))
