"""Alembic revisions of the trainer's tables, one per version, in ``versions``."""

from __future__ import annotations

from pathlib import Path

from mxd.trainer.storage.database.versions import MigrationChain

CHAIN = MigrationChain(owner="trainer", scripts=Path(__file__).parent, newest=3)
