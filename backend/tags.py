"""Tags: short words that people put on experts, as many as they like, to gather what belongs together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime

from sqlalchemy import ColumnElement, DateTime, Index, String, delete, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from backend.notes import NotesBase
from trainer.store import utc_now


class TagRecord(NotesBase):
    """One tag on one expert."""

    __tablename__ = "tags"

    run: Mapped[str] = mapped_column(String(200), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    tag: Mapped[str] = mapped_column(String(60), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))

    __table_args__ = (Index("experts_of_tag", "run", "tag", "expert"),)


def add_tag(session: Session, run: str, expert: int, tag: str) -> None:
    """Put a tag on an expert; nothing happens where it has it."""
    if session.get(TagRecord, (run, expert, tag)) is None:
        session.add(TagRecord(run=run, expert=expert, tag=tag, created_at=utc_now()))


def remove_tag(session: Session, run: str, expert: int, tag: str) -> None:
    """Take a tag off an expert, if it has it."""
    session.execute(delete(TagRecord).where(TagRecord.run == run, TagRecord.expert == expert, TagRecord.tag == tag))


def tags_of(session: Session, run: str, experts: Collection[int]) -> dict[int, tuple[str, ...]]:
    """Tags of those of ``experts`` that have any, in alphabetical order."""
    return _by_expert(session, TagRecord.run == run, TagRecord.expert.in_(list(experts)))


def all_tags(session: Session, run: str) -> dict[int, tuple[str, ...]]:
    """Tags of every expert of a run that has any, in alphabetical order."""
    return _by_expert(session, TagRecord.run == run)


def _by_expert(session: Session, *conditions: ColumnElement[bool]) -> dict[int, tuple[str, ...]]:
    found: dict[int, list[str]] = defaultdict(list)
    for expert, tag in session.execute(
        select(TagRecord.expert, TagRecord.tag).where(*conditions).order_by(TagRecord.tag)
    ):
        found[expert].append(tag)
    return {expert: tuple(tags) for expert, tags in found.items()}


def tag_counts(session: Session, run: str) -> list[tuple[str, int]]:
    """(tag, how many experts have it) of a run, in alphabetical order."""
    wanted = select(TagRecord.tag, func.count()).where(TagRecord.run == run).group_by(TagRecord.tag)
    return [(tag, count) for tag, count in session.execute(wanted.order_by(TagRecord.tag))]


def tagged(session: Session, run: str, tag: str) -> set[int]:
    """Experts that have a tag."""
    return set(session.scalars(select(TagRecord.expert).where(TagRecord.run == run, TagRecord.tag == tag)))


def count_of(session: Session, run: str) -> int:
    """Tags that experts of a run have."""
    return session.scalar(select(func.count()).select_from(TagRecord).where(TagRecord.run == run)) or 0


def remove_all(session: Session, run: str) -> None:
    """Take all tags of a run away."""
    session.execute(delete(TagRecord).where(TagRecord.run == run))
