"""The two roles, and the role that a request needs."""

from __future__ import annotations

import re

from mxd.backend.settings import Role

READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
READING_POSTS = re.compile(
    r"^/api/(routing|circuits(/attention|/effects|/graph|/read)?|runs/[^/]+/routing(/effects|/predictions)?"
    r"|runs/[^/]+/(search/passage|contrast))$"
)
"""POST endpoints that change nothing. Every other POST, PUT, PATCH and DELETE needs ``write``."""

OPEN_PATHS = frozenset({"/api/access"})
GUARDED = ("/api/", "/v1/", "/metrics")


def needed_role(method: str, path: str) -> Role | None:
    """Return the smallest sufficient role; None for public paths: sign-in, the pages and the API description."""
    if not path.startswith(GUARDED) or path in OPEN_PATHS:
        return None
    return "read" if method in READING_METHODS or READING_POSTS.match(path) else "write"


def allows(role: Role, needed: Role) -> bool:
    """Return True if a role includes another: ``write`` includes ``read``."""
    return role == "write" or needed == "read"
