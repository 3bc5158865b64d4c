"""What each expert does and how much it matters: measured on its own contexts, against others of its usage."""

from __future__ import annotations

from trainer.influence.build import InfluenceResult, build_influence

__all__ = ["InfluenceResult", "build_influence"]
