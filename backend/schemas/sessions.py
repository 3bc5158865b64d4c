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


class ShowcaseToken(Schema):
    """A token of a stored text."""

    id: int
    text: str
    delta_log_probability: float
    """Change of its log-probability by the edits, in nats."""


class ShowcaseText(Schema):
    """A continuation at one strength."""

    strength: float
    """Strength of every edit, in units of its expert's 99th percentile. 0 is the original model."""
    tokens: tuple[ShowcaseToken, ...]


class ShowcaseFile(Schema):
    """The file ``showcase.json`` of a data folder."""

    run: str
    session: str
    """Name of the session."""
    command: str
    """The command that wrote the texts."""
    texts: Annotated[tuple[ShowcaseText, ...], Field(min_length=2)]
    """By rising strength. The first is that of the original model."""


class Showcase(Schema):
    """A saved session with its texts at several strengths, so that a slider answers at once."""

    session: SavedSession
    texts: tuple[ShowcaseText, ...]


class HomeShowcase(Schema):
    """What the first page shows."""

    showcase: Showcase | None
    """Null if the data folder has none, or if its texts can no longer be reproduced."""
