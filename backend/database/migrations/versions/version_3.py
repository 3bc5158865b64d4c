"""A session keeps both texts and the price of its edits."""

from alembic import op
from sqlalchemy import JSON, Column, inspect

revision = "3"
down_revision = "2"


def upgrade() -> None:
    """Add the column, unless the code has yet to create the table. Earlier sessions have no result."""
    if inspect(op.get_bind()).has_table("sessions"):
        op.add_column("sessions", Column("result", JSON))
