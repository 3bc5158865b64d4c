"""Pages of experts are ordered in memory, not by indexes. Measurements have a time, which says that they are new."""

from alembic import op
from sqlalchemy import Column, DateTime, inspect

revision = "6"
down_revision = "5"


def upgrade() -> None:
    """Drop the indexes, and add the column unless version 3 has just created its table."""
    for index in inspect(op.get_bind()).get_indexes("experts"):
        if index["name"] != "experts_by_density":
            op.drop_index(str(index["name"]), "experts")
    if "created_at" not in {column["name"] for column in inspect(op.get_bind()).get_columns("measurements")}:
        op.add_column("measurements", Column("created_at", DateTime(timezone=True)))
