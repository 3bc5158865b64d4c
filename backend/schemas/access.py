"""Who is signed in."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints

from backend.schemas.base import Schema

Role = Literal["read", "write"]
"""read: browse, and route within limits. write: steer, label, delete, too."""


class SignInRequest(Schema):
    token: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]


class AccessInfo(Schema):
    tokens_required: bool
    """Whether this server asks for a token at all."""
    role: Role | None
    """What you may do; null before you have signed in."""
