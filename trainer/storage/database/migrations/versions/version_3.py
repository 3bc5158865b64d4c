"""Removed: the table of label scores, which no version reads any more. Databases that have it keep it, unused."""

from __future__ import annotations

revision = "3"
down_revision = "2"


def upgrade() -> None:
    """Do nothing."""
