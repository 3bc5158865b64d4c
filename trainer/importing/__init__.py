"""Layers that other programs fitted, as runs: one file a format, one registry, nothing executed."""

from trainer.importing.build import ImportResult, import_run
from trainer.importing.config import ImportConfig

__all__ = ["ImportConfig", "ImportResult", "import_run"]
