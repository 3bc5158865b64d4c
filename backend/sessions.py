"""Saved steering sessions, in a table of the backend beside the trainer's.

A session keeps the whole request, and the 99th percentiles that its strengths were counted in: indexing a run anew may
move them, and then the same strengths mean something else.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, Connection, DateTime, String, delete, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from backend.errors import SessionNotFoundError
from trainer.store import utc_now

ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"
"""Without what is easily mistaken for something else when an address is read aloud or typed."""
ID_LENGTH = 7


class SessionsBase(DeclarativeBase):
    """Base of the table of sessions."""


class SessionRecord(SessionsBase):
    """One saved session."""

    __tablename__ = "sessions"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    run: Mapped[str] = mapped_column(String(200), index=True)
    name: Mapped[str] = mapped_column(String(200))
    steering: Mapped[dict[str, Any]] = mapped_column(JSON)
    """The request as it travels."""
    units: Mapped[dict[str, dict[str, float]]] = mapped_column(JSON)
    """Run -> expert -> its 99th percentile when it was saved."""
    saved_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))

    @property
    def saved_at_utc(self) -> datetime:
        """SQLite gives times back without their zone; they were written in UTC."""
        return self.saved_at if self.saved_at.tzinfo else self.saved_at.replace(tzinfo=UTC)


def create_tables(connection: Connection) -> None:
    """Create what is missing."""
    SessionsBase.metadata.create_all(connection)


def save_session(
    session: Session, run: str, name: str, steering: dict[str, Any], units: dict[str, dict[str, float]]
) -> SessionRecord:
    """Keep a session under a new id."""
    record = SessionRecord(
        id="".join(secrets.choice(ALPHABET) for _ in range(ID_LENGTH)),
        run=run,
        name=name,
        steering=steering,
        units=units,
        saved_at=utc_now(),
    )
    session.add(record)
    session.flush()
    return record


def kept_units(units: dict[str, dict[int, float]]) -> dict[str, dict[str, float]]:
    """Run -> expert -> its 99th percentile as JSON keeps it, whose keys are texts."""
    return {run: {str(expert): unit for expert, unit in known.items()} for run, known in units.items()}


def find_session(session: Session, id: str) -> SessionRecord:
    """The session of this id.

    Raises:
        SessionNotFoundError: there is none.
    """
    record = session.get(SessionRecord, id)
    if record is None:
        raise SessionNotFoundError(f"There is no saved session {id}; it may have been deleted. Save it again.")
    return record


def sessions_of(session: Session, run: str) -> list[SessionRecord]:
    """All sessions of a run, the newest first."""
    wanted = select(SessionRecord).where(SessionRecord.run == run)
    return list(session.scalars(wanted.order_by(SessionRecord.saved_at.desc(), SessionRecord.id)))


def delete_session(session: Session, id: str) -> None:
    """Take a session away.

    Raises:
        SessionNotFoundError: there is none.
    """
    session.delete(find_session(session, id))


def remove_sessions(session: Session, run: str) -> None:
    """Take all sessions of a run away."""
    session.execute(delete(SessionRecord).where(SessionRecord.run == run))
