"""Who is signed in."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from backend.schemas.base import Schema
from backend.settings import Role


class SignInRequest(Schema):
    token: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]


class AccessInfo(Schema):
    tokens_required: bool
    """Whether this server asks for a token at all."""
    role: Role | None
    """What you may do; null before you have signed in."""
