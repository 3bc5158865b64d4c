"""Access tokens: random, displayed once, stored as a hash.

A token has 256 random bits, so an unsalted SHA-256 is enough: brute force is infeasible.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import DateTime, String, delete, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from mxd.backend.database.annotations import NotesBase
from mxd.backend.settings import Role
from mxd.trainer.errors import NotFoundError
from mxd.trainer.storage.database.tables import utc_now

PREFIX = "mxd_"
"""Prefix that lets secret scanners recognise a leaked token."""
RANDOM_BYTES = 32


class AccessTokenRecord(NotesBase):
    """An active token."""

    __tablename__ = "access_tokens"

    id: Mapped[int] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(String(8))
    name: Mapped[str] = mapped_column(String(100))
    """Purpose or owner, chosen by its creator."""
    sha256: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


@dataclass(frozen=True)
class NewToken:
    """A new token, displayed once."""

    id: int
    role: Role
    name: str
    token: str


def create_token(session: Session, role: Role, name: str) -> NewToken:
    """Create a token. It cannot be displayed again."""
    token = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    record = AccessTokenRecord(role=role, name=name, sha256=digest(token), created_at=utc_now())
    session.add(record)
    session.flush()
    return NewToken(record.id, role, name, token)


def role_of(session: Session, token: str) -> Role | None:
    """Return the role of a token; None if it is unknown or revoked."""
    role = session.scalar(select(AccessTokenRecord.role).where(AccessTokenRecord.sha256 == digest(token)))
    return "write" if role == "write" else "read" if role == "read" else None


def tokens(session: Session) -> Sequence[AccessTokenRecord]:
    """Return all active tokens, oldest first."""
    return session.scalars(select(AccessTokenRecord).order_by(AccessTokenRecord.id)).all()


def count_tokens(session: Session) -> int:
    """Return the number of active tokens."""
    return session.scalar(select(func.count()).select_from(AccessTokenRecord)) or 0


def revoke_token(session: Session, token_id: int) -> None:
    """Revoke a token. Raises NotFoundError if no token has this id."""
    if session.get(AccessTokenRecord, token_id) is None:
        raise NotFoundError(f"Unknown token: {token_id}. Run 'mxd token list' to see the active tokens.")
    session.execute(delete(AccessTokenRecord).where(AccessTokenRecord.id == token_id))


def digest(token: str) -> str:
    """Return the hash under which a token is stored."""
    return hashlib.sha256(token.encode()).hexdigest()
