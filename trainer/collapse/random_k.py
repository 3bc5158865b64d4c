"""Random-K: on each step as many experts as chance says, around K, so that no expert can rely on the others
(arXiv 2505.21364, on shared experts; after Matryoshka-like training)."""

from __future__ import annotations

import numpy as np

from trainer.config import TrainConfig
from trainer.methods import NO_TOP_K


def drawn_k(config: TrainConfig, k: int, step: int) -> int:
    """K of a step: uniform between ``k`` less and ``k`` plus the spread, the same whenever the step is taken."""
    spread = round(k * config.collapse.k_spread)
    if spread == 0 or config.method in NO_TOP_K:  # which has no K to draw
        return k
    chance = np.random.default_rng([config.seed, step])
    return int(chance.integers(max(1, k - spread), k + spread + 1))
