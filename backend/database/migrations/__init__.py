"""Alembic revisions of the backend's tables (user annotations, sessions, access tokens), one per version."""

from pathlib import Path

from mxd.trainer.storage.database.open import MigrationChain

CHAIN = MigrationChain(owner="backend", scripts=Path(__file__).parent, newest=3)
