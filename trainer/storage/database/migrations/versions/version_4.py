"""Steerability of experts, which indexing computes."""

from alembic import op
from sqlalchemy import Column, Double

revision = "4"
down_revision = "3"


def upgrade() -> None:
    """Add the column with its index. It stays empty until a run is indexed again."""
    op.add_column("experts", Column("steerability", Double()))
    op.create_index("experts_by_steerability", "experts", ["run_id", "steerability", "expert"])
