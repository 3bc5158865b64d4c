"""Sign-in with an access token."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from mxd.backend.schemas.base import Schema
from mxd.backend.settings import Role


class SignInRequest(Schema):
    """An access token."""

    token: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]


class AccessInfo(Schema):
    """Authentication state of the client."""

    tokens_required: bool
    """True if the server requires an access token."""
    role: Role | None
    """Permissions of the client; null before sign-in."""
