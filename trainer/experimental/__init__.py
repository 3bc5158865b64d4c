"""Experimental methods and settings: kept reproducible, but not part of the core, which does not name them.

Importing this package registers them. The programs do so at their start: ``mxd.backend`` and ``mxd.api``. The modules
with the layers are imported when a layer is built.
"""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from mxd.trainer.config import Config, TrainConfig
from mxd.trainer.config.methods import MethodTraits, RankTraits, register_method
from mxd.trainer.config.training import register_settings

METHODS = {
    "low-rank-mxd": MethodTraits(
        "a mixture of low-rank experts (muMoE in CP form, arXiv 2402.12550)",
        "experimental",
        rank=RankTraits(lambda width: max(1, width // 4), lambda _count, rank: rank),
        module="mxd.trainer.experimental.low_rank",
    ),
    "tensor-ring-mxd": MethodTraits(
        "a mixture of experts in tensor-ring form (muMoE, arXiv 2402.12550)",
        "experimental",
        rank=RankTraits(lambda width: max(1, math.isqrt(width // 4)), lambda _count, rank: rank**2),
        module="mxd.trainer.experimental.tensor_ring",
    ),
    "hidden-mxd": MethodTraits(
        "an MxD that mixes hidden units (EleutherAI's clt-training)",
        "experimental",
        mixing="centred",
        mixes_hidden=True,
        module="mxd.trainer.experimental.hidden",
    ),
}
for _method, _traits in METHODS.items():
    register_method(_method, _traits)


class ExperimentalConfig(Config):
    """Experimental training settings; off by default."""

    diversity_weight: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the diversity penalty, the mean squared cosine similarity between the outputs of different experts.
    Default: 0 (off)."""


class ExperimentalTrainConfig(TrainConfig):
    """Training settings with experimental ones."""

    experimental: ExperimentalConfig = ExperimentalConfig()


register_settings("experimental", ExperimentalTrainConfig)
