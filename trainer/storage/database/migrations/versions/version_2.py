"""The table of recurrences: which experts are found again in other runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Create the table."""
    number: sa.Double[float] = sa.Double()
    op.create_table(
        "recurrences",
        sa.Column("run_id", sa.Integer, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("expert", sa.Integer, primary_key=True),
        sa.Column("other_run", sa.String(200), primary_key=True),
        sa.Column("other_expert", sa.Integer, nullable=False),
        sa.Column("mutual", sa.Boolean, nullable=False),
        *(
            sa.Column(name, number, nullable=False)
            for name in (
                "firing_cosine",
                "firing_low",
                "firing_high",
                "firing_chance",
                "writing_cosine",
                "writing_chance",
            )
        ),
        sqlite_with_rowid=False,
    )
