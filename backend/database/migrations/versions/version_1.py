"""Baseline: the tables that ``backend.database`` creates in a new database."""

revision = "1"
down_revision = None


def upgrade() -> None:
    """Do nothing: a database without a version gets its tables from the code, not from revisions."""
