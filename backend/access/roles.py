"""The two roles, and which of them a request needs."""

from __future__ import annotations

import re

from backend.settings import Role

READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
READING_POSTS = re.compile(
    r"^/api/(routing|circuits(/effects)?|privacy/tokens|runs/[^/]+/routing(/effects|/predictions)?"
    r"|runs/[^/]+/search/passage)$"
)
"""What is asked for with a body and changes nothing. Every other POST, PUT, PATCH and DELETE needs ``write``."""

OPEN_PATHS = frozenset({"/api/access", "/api/openapi.json"})
GUARDED = ("/api/", "/metrics")


def needed_role(method: str, path: str) -> Role | None:
    """The least role that may do this; None for what anybody may: signing in, the pages and the API's description."""
    if not path.startswith(GUARDED) or path in OPEN_PATHS:
        return None
    return "read" if method in READING_METHODS or READING_POSTS.match(path) else "write"


def allows(role: Role, needed: Role) -> bool:
    """Whether a role includes another: who may write may read."""
    return role == "write" or needed == "read"
