"""Steering sessions that were saved under a name."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field, StringConstraints

from backend.schemas.base import Schema
from backend.schemas.steering import SteeringRequest

SessionName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]


class SaveSessionRequest(Schema):
    name: SessionName
    steering: SteeringRequest
    """All that its texts depend on."""


class SessionSummary(Schema):
    id: Annotated[str, Field(max_length=32)]
    """Short; the session's address is ``/s/`` and this."""
    name: str
    run: str
    prompt: str
    """Its beginning."""
    edits: int
    expert: int | None
    """The expert that is turned up, where that is all that it does: one edit that adds, to this very run."""
    strength: float | None
    """How far it is turned up, in units of its 99th percentile."""
    saved_at: datetime


class SessionList(Schema):
    sessions: tuple[SessionSummary, ...]
    """The newest first."""


class SavedSession(SessionSummary):
    steering: SteeringRequest
    changed: tuple[str, ...]
    """Why the same request may write other texts now, one sentence each; none where it writes the same."""
