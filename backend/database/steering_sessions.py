"""Saved steering sessions.

A session stores the complete request and the 99th percentiles that its strengths refer to. Indexing a run again may
change the percentiles, and with them the meaning of a strength.
"""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, DateTime, String, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from mxd.backend.database.annotations import NotesBase
from mxd.backend.errors import SessionNotFoundError
from mxd.trainer.storage.database.tables import utc_now

ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"
"""Letters and digits that are not easily confused when an address is read aloud or typed."""
ID_LENGTH = 7


class SessionRecord(NotesBase):
    """A saved session."""

    __tablename__ = "sessions"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    run: Mapped[str] = mapped_column(String(200), index=True)
    name: Mapped[str] = mapped_column(String(200))
    steering: Mapped[dict[str, Any]] = mapped_column(JSON)
    """The request as JSON."""
    units: Mapped[dict[str, dict[str, float]]] = mapped_column(JSON)
    """Run -> expert -> 99th percentile at the time of saving."""
    saved_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    text: Mapped[str | None] = mapped_column(String(400))
    """Beginning of the steered text. None for a session saved without it."""


def save_session(
    session: Session,
    run: str,
    name: str,
    steering: dict[str, Any],
    units: dict[str, dict[str, float]],
    text: str | None = None,
) -> SessionRecord:
    """Store a session under a new id."""
    record = SessionRecord(
        id="".join(secrets.choice(ALPHABET) for _ in range(ID_LENGTH)),
        run=run,
        name=name,
        steering=steering,
        units=units,
        saved_at=utc_now(),
        text=text,
    )
    session.add(record)
    session.flush()
    return record


def json_units(units: dict[str, dict[int, float]]) -> dict[str, dict[str, float]]:
    """Return units with string keys, as JSON requires."""
    return {run: {str(expert): unit for expert, unit in known.items()} for run, known in units.items()}


def find_session(session: Session, id: str) -> SessionRecord:
    """Return the session with this id. Raises SessionNotFoundError if no session has this id."""
    record = session.get(SessionRecord, id)
    if record is None:
        raise SessionNotFoundError(f"Unknown session: {id}. It may have been deleted.")
    return record


def sessions_of(session: Session, run: str) -> list[SessionRecord]:
    """Return all sessions of a run, newest first."""
    query = select(SessionRecord).where(SessionRecord.run == run)
    return list(session.scalars(query.order_by(SessionRecord.saved_at.desc(), SessionRecord.id)))


def all_sessions(session: Session) -> list[SessionRecord]:
    """Return the sessions of all runs, newest first."""
    return list(session.scalars(select(SessionRecord).order_by(SessionRecord.saved_at.desc(), SessionRecord.id)))


def delete_session(session: Session, id: str) -> None:
    """Delete a session. Raises SessionNotFoundError if no session has this id."""
    session.delete(find_session(session, id))


def remove_sessions(session: Session, run: str) -> None:
    """Delete all sessions of a run."""
    session.execute(delete(SessionRecord).where(SessionRecord.run == run))
