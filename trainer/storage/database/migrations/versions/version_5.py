"""The activation of an example has the name that it has everywhere else."""

from alembic import op
from sqlalchemy import inspect

revision = "5"
down_revision = "4"


def upgrade() -> None:
    """Rename the column, unless version 3 has just created its table."""
    if "coefficient" in {column["name"] for column in inspect(op.get_bind()).get_columns("examples")}:
        op.alter_column("examples", "coefficient", new_column_name="activation")
