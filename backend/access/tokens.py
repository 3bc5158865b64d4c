"""Access tokens: random, shown once, and kept only as a hash.

A token holds 256 random bits, so a plain SHA-256 keeps it safe at rest: there is nothing to guess at.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import DateTime, String, delete, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from backend.notes import NotesBase
from backend.settings import Role
from trainer.errors import NotFoundError
from trainer.store import utc_now

PREFIX = "mxd_"
"""So that scanners for leaked secrets can know one when they see it."""
RANDOM_BYTES = 32


class AccessTokenRecord(NotesBase):
    """A token that has been given out."""

    __tablename__ = "access_tokens"

    id: Mapped[int] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(String(8))
    name: Mapped[str] = mapped_column(String(100))
    """What or whom it is for, in the words of who made it."""
    sha256: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


@dataclass(frozen=True)
class NewToken:
    """A token as it is shown, once."""

    id: int
    role: Role
    name: str
    token: str


def create_token(session: Session, role: Role, name: str) -> NewToken:
    """Make a token. It cannot be shown again."""
    token = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    record = AccessTokenRecord(role=role, name=name, sha256=digest(token), created_at=utc_now())
    session.add(record)
    session.flush()
    return NewToken(record.id, role, name, token)


def role_of(session: Session, token: str) -> Role | None:
    """The role of a token; None for one that was never given out, or has been revoked."""
    found = session.scalar(select(AccessTokenRecord.role).where(AccessTokenRecord.sha256 == digest(token)))
    return "write" if found == "write" else "read" if found == "read" else None


def tokens(session: Session) -> Sequence[AccessTokenRecord]:
    """All that are in use, oldest first."""
    return session.scalars(select(AccessTokenRecord).order_by(AccessTokenRecord.id)).all()


def count_tokens(session: Session) -> int:
    """How many are in use."""
    return session.scalar(select(func.count()).select_from(AccessTokenRecord)) or 0


def revoke_token(session: Session, token_id: int) -> None:
    """Let a token open nothing any more.

    Raises:
        NotFoundError: there is none of this number.
    """
    if session.get(AccessTokenRecord, token_id) is None:
        raise NotFoundError(f"There is no token {token_id}; mxd token list shows those in use.")
    session.execute(delete(AccessTokenRecord).where(AccessTokenRecord.id == token_id))


def digest(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()
