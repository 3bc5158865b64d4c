"""Ablation and steering effects of every expert, measured on its own examples, with random baselines."""

from __future__ import annotations

from mxd.trainer.analysis.ablation.ablate import AblationResult, build_ablations

__all__ = ["AblationResult", "build_ablations"]
