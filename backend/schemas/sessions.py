"""Saved steering sessions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field, StringConstraints

from mxd.backend.schemas.base import Schema
from mxd.backend.schemas.steering import SteeringRequest

SessionName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]


class SaveSessionRequest(Schema):
    """A session to save."""

    name: SessionName
    steering: SteeringRequest
    """The complete request, so that the session can be reproduced."""


class SessionSummary(Schema):
    """A saved session without its request."""

    id: Annotated[str, Field(max_length=32)]
    """Short id. The session's page is ``/s/{id}``."""
    name: str
    run: str
    prompt: str
    """Beginning of the prompt."""
    edits: int
    """Number of edits."""
    expert: int | None
    """Amplified expert, if the only edit amplifies an expert of this run; else null."""
    strength: float | None
    """Its strength in units of its 99th percentile."""
    saved_at: datetime


class SessionList(Schema):
    """Saved sessions of a run."""

    sessions: tuple[SessionSummary, ...]
    """Newest first."""


class SavedSession(SessionSummary):
    """A saved session."""

    steering: SteeringRequest
    changed: tuple[str, ...]
    """Reasons why the same request may generate different texts now, one sentence each."""
