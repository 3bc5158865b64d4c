"""Counts that grow with the text or the weights in 64 bits.

Integers of PostgreSQL had 32, and fits of more than 2,147,483,647 tokens are usual. SQLite's are as large as they need
to be: nothing changes there.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "5"
down_revision = "4"

COUNTS = {
    "runs": ("parameters", "tokens_wanted", "tokens_done"),
    "metrics": ("tokens",),
    "indexes": ("tokens", "contexts"),
    "experts": ("active_tokens",),
}


def upgrade() -> None:
    """Widen the columns."""
    if op.get_bind().dialect.name == "sqlite":
        return
    for table, columns in COUNTS.items():
        for column in columns:
            op.alter_column(table, column, existing_type=sa.Integer(), type_=sa.BigInteger(), existing_nullable=False)
