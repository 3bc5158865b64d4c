"""Run by Alembic: its revisions work on the connection that they are given, in the transaction that it is in."""

from __future__ import annotations

from alembic import context

given = context.config.attributes
# Batches: SQLite changes a column by writing the table anew.
context.configure(connection=given["connection"], version_table=given["version_table"], render_as_batch=True)
context.run_migrations()
