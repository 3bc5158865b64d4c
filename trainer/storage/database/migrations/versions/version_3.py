"""The table of label scores: how well a language model can use the label of an expert."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "label_scores",
        sa.Column("run_id", sa.Integer, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("expert", sa.Integer, primary_key=True),
        sa.Column("method", sa.String(16), primary_key=True),
        sa.Column("judge", sa.String(200), primary_key=True),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("score", sa.Double),
        sa.Column("control", sa.Double),
        sa.Column("texts", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text),
    )
