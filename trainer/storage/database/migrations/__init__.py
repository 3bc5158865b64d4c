"""Alembic revisions of the trainer's tables, one per version, in ``versions``."""
