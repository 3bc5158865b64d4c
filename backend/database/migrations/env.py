"""Alembic environment: run the revisions on the caller's connection, inside the caller's transaction."""

from alembic import context

attributes = context.config.attributes
# Batch mode: SQLite changes a column by copying the table.
context.configure(connection=attributes["connection"], version_table=attributes["version_table"], render_as_batch=True)
context.run_migrations()
