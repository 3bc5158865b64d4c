"""The first tables of what people add. They have never been others, so what is there stays as it is."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    """Make what is missing."""
    _of_experts()
    _lists()
    op.create_table(
        "access_tokens",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("role", sa.String(8), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        _time("created_at"),
        sa.UniqueConstraint("sha256"),
        if_not_exists=True,
    )
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("run", sa.String(200), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("steering", sa.JSON, nullable=False),
        sa.Column("units", sa.JSON, nullable=False),
        _time("saved_at"),
        if_not_exists=True,
    )
    op.create_index("ix_sessions_run", "sessions", ["run"], if_not_exists=True)


def _of_experts() -> None:
    for table, value in (("labels", sa.Column("label", sa.String(200))), ("notes", sa.Column("note", sa.Text))):
        value.nullable = False
        op.create_table(table, *_expert_of_run(), value, _time("updated_at"), if_not_exists=True)
    tag = sa.Column("tag", sa.String(60), primary_key=True)
    op.create_table("tags", *_expert_of_run(), tag, _time("created_at"), if_not_exists=True)
    op.create_index("experts_of_tag", "tags", ["run", "tag", "expert"], if_not_exists=True)


def _lists() -> None:
    op.create_table(
        "lists",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("run", sa.String(200), nullable=False),
        sa.Column("name", sa.String(120), nullable=False),
        sa.Column("note", sa.Text),
        _time("created_at"),
        _time("updated_at"),
        sa.UniqueConstraint("run", "name"),
        if_not_exists=True,
    )
    op.create_table(
        "list_entries",
        sa.Column("list_id", sa.Integer, sa.ForeignKey("lists.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("expert", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("place", sa.Integer, nullable=False),
        sa.Column("note", sa.Text),
        if_not_exists=True,
    )


def _expert_of_run() -> tuple[sa.Column[str], sa.Column[int]]:
    run = sa.Column("run", sa.String(200), primary_key=True)
    return run, sa.Column("expert", sa.Integer, primary_key=True, autoincrement=False)


def _time(name: str) -> sa.Column[datetime]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False)
