"""Baseline: versions before it lacked tables that later ones have, and changed none."""

from alembic import op

from mxd.trainer.storage.database.tables import Base

revision = "3"
down_revision = "1"


def upgrade() -> None:
    """Create the missing tables. Databases that have a table of removed measurements keep it, unused."""
    Base.metadata.create_all(op.get_bind())
