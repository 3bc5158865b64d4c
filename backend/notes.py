"""What people add: labels and notes of experts, in tables of the backend beside the trainer's.

They are kept by the run's name, not by its row, so that indexing or fitting again does not lose them.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from sqlalchemy import DateTime, String, Text, delete, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from trainer.store import utc_now


class NotesBase(DeclarativeBase):
    """Base of the backend's own tables."""


class LabelRecord(NotesBase):
    """The short name that somebody gave an expert."""

    __tablename__ = "labels"

    run: Mapped[str] = mapped_column(String(200), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    label: Mapped[str] = mapped_column(String(200))
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class NoteRecord(NotesBase):
    """What somebody wrote about an expert."""

    __tablename__ = "notes"

    run: Mapped[str] = mapped_column(String(200), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    note: Mapped[str] = mapped_column(Text)
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


def labels_of(session: Session, run: str, experts: Collection[int]) -> dict[int, str]:
    """Labels of those of ``experts`` that have one."""
    wanted = select(LabelRecord.expert, LabelRecord.label).where(
        LabelRecord.run == run, LabelRecord.expert.in_(list(experts))
    )
    return {record.expert: record.label for record in session.execute(wanted)}


def all_labels(session: Session, run: str) -> dict[int, str]:
    """Every label of a run's experts."""
    wanted = select(LabelRecord.expert, LabelRecord.label).where(LabelRecord.run == run)
    return {record.expert: record.label for record in session.execute(wanted)}


def labels_stamp(session: Session, run: str) -> tuple[int, datetime | None]:
    """Changes whenever a label of the run does."""
    wanted = select(func.count(), func.max(LabelRecord.updated_at)).where(LabelRecord.run == run)
    count, newest = session.execute(wanted).one()
    return count, newest


def note_of(session: Session, run: str, expert: int) -> str | None:
    """The note of an expert."""
    record = session.get(NoteRecord, (run, expert))
    return record.note if record else None


def set_label(session: Session, run: str, expert: int, label: str) -> None:
    """Give an expert a label, in place of the one it had."""
    # Later than any label of the run, also where the clock was set back: by that others see that one has changed.
    _, newest = labels_stamp(session, run)
    now = utc_now()
    if newest is not None:
        now = max(now, newest.replace(tzinfo=newest.tzinfo or UTC) + timedelta(microseconds=1))
    session.merge(LabelRecord(run=run, expert=expert, label=label, updated_at=now))


def set_note(session: Session, run: str, expert: int, note: str) -> None:
    """Give an expert a note, in place of the one it had."""
    session.merge(NoteRecord(run=run, expert=expert, note=note, updated_at=utc_now()))


def remove_label(session: Session, run: str, expert: int) -> None:
    """Take an expert's label away, if it has one."""
    session.execute(delete(LabelRecord).where(LabelRecord.run == run, LabelRecord.expert == expert))


def remove_note(session: Session, run: str, expert: int) -> None:
    """Take an expert's note away, if it has one."""
    session.execute(delete(NoteRecord).where(NoteRecord.run == run, NoteRecord.expert == expert))


def count_of(session: Session, run: str) -> int:
    """Labels and notes that a run has."""
    return sum(
        session.scalar(select(func.count()).select_from(table).where(table.run == run)) or 0
        for table in (LabelRecord, NoteRecord)
    )


def remove_all(session: Session, run: str) -> None:
    """Take all labels and notes of a run away."""
    for table in (LabelRecord, NoteRecord):
        session.execute(delete(table).where(table.run == run))
