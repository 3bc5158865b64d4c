"""With which settings influence and steering were measured, so that a report can say how to do it again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "7"
down_revision = "6"


def upgrade() -> None:
    """Make the table, empty: of what was measured before the settings are not known."""
    op.create_table(
        "measurements",
        sa.Column("run_id", sa.Integer, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("command", sa.String(32), primary_key=True),
        sa.Column("settings", sa.JSON, nullable=False),
    )
