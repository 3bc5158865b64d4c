"""A session keeps the beginning of its steered text, which its card shows."""

from alembic import op
from sqlalchemy import Column, String, inspect

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Add the column, unless the code has yet to create the table. Earlier sessions have no text."""
    if inspect(op.get_bind()).has_table("sessions"):
        op.add_column("sessions", Column("text", String(400)))
