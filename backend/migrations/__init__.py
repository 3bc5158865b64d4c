"""What the backend's tables have been, those of what people add: one Alembic revision a version, in ``versions``."""

from __future__ import annotations

from pathlib import Path

from trainer.versions import Chain

CHAIN = Chain(owner="backend", scripts=Path(__file__).parent, newest=1, same_in_sqlite=1)
