"""What the trainer's tables have been: one Alembic revision a version, in ``versions``."""

from __future__ import annotations

from pathlib import Path

from trainer.versions import Chain

CHAIN = Chain(owner="trainer", scripts=Path(__file__).parent, newest=7, same_in_sqlite=7)
