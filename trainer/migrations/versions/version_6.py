"""How full the ranks of experts are while a layer is fitted; nobody had measured that before."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "6"
down_revision = "5"

RANKS = ("normalised_rank", "stable_rank", "smallest_singular_value", "smallest_scaling")


def upgrade() -> None:
    """Add the columns, empty."""
    for name in RANKS:
        op.add_column("metrics", sa.Column(name, sa.Double(), nullable=True))
