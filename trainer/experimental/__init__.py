"""Experimental methods and settings: kept reproducible, but not part of the core, which does not name them.

Importing this package registers them. The programs do so at their start: ``mxd.backend`` and ``mxd.api``. The modules
with the layers are imported when a layer is built.
"""

import math
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from mxd.trainer.config.base import Config, Count, without_retired
from mxd.trainer.config.layer import MethodTraits, RankTraits, register_method
from mxd.trainer.config.training import TrainConfig, register_settings

METHODS = {
    "low-rank-mxd": MethodTraits(
        "a mixture of low-rank experts (muMoE in CP form, arXiv 2402.12550)",
        "experimental",
        rank=RankTraits(lambda width: max(1, width // 4), lambda _count, rank: rank),
    ),
    "tensor-ring-mxd": MethodTraits(
        "a mixture of experts in tensor-ring form (muMoE, arXiv 2402.12550)",
        "experimental",
        rank=RankTraits(lambda width: max(1, math.isqrt(width // 4)), lambda _count, rank: rank**2),
    ),
    "hidden-mxd": MethodTraits(
        "an MxD that mixes hidden units (EleutherAI's clt-training)",
        "experimental",
        initializes_from_examples=True,
        mixing="centred",
        mixes_hidden=True,
    ),
}
for _method, _traits in METHODS.items():
    register_method(_method, replace(_traits, module=f"{__name__}.layers"))


class ExperimentalConfig(Config):
    """Experimental training settings; off by default."""

    diversity_weight: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the diversity penalty, the mean squared cosine similarity between the outputs of different experts.
    Default: 0 (off)."""
    constant_weight: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the share of the output's variance that the best constant mixing of the hidden units explains. Default:
    0 (off). Only for --method=hidden-mxd."""
    freeze: Literal["none", "gate", "table", "both"] = "none"
    """Parameters that keep their first values, as a control of what training them adds: those of the gate, the table
    with one row per expert, or both. Default: none."""
    inputs: Literal["text", "gaussian"] = "text"
    """Inputs of the MLP to train on. gaussian: normally distributed, with the mean and covariance of those of the text,
    and the original MLP's outputs on them. Default: text."""


class ExperimentalTrainConfig(TrainConfig):
    """Training settings with experimental ones."""

    experimental: ExperimentalConfig = ExperimentalConfig()


class ProtectConfig(Config):
    """Fine-tuning that makes predictions on chosen passages near-uniform and keeps the loss on a retain set."""

    theta: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Weight of the loss on the passages, KL(U || p), 0 to 1; the loss on the retain set gets 1 − theta. Default:
    0.5."""
    steps: Annotated[int, Field(ge=1, le=10_000)] = 10
    """Maximum optimisation steps, up to 10,000; the best checkpoint is kept. Default: 10."""
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 3e-3
    """Learning rate of Adam. Default: 3e-3."""
    skip_tokens: Annotated[int, Field(ge=0, le=65_536)] = 4
    """Tokens at the start of each passage whose predictions are not protected. Default: 4, because predictions after so
    few tokens are similar in all text."""
    batch_tokens: Count = 512
    """Tokens of the retain set per step. Default: 512."""
    tokens: Count = 8192
    """Tokens of the retain set: half to train on, an eighth to choose the best step, the rest to measure. Default:
    8,192."""
    check_every: Annotated[int, Field(ge=1, le=10_000)] = 2
    """Steps between the checks from which the best step is chosen. Default: 2."""
    max_added_loss: Annotated[float, Field(ge=0)] = 0.05
    """Largest allowed loss increase on the retain set (nats per token). Among steps within the limit, the one with the
    lowest confidence on the passages is kept. Default: 0.05."""
    attack_steps: Annotated[int, Field(ge=0, le=1000)] = 20
    """Steps of the relearning attack, which fine-tunes on half of the passages and measures the other half; 0 skips it.
    Default: 20."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Random seed of the retain set's order and of the bootstrap. Default: 0."""

    @model_validator(mode="before")
    @classmethod
    def _drop_retired(cls, values: Any) -> Any:
        return without_retired(values)


class ProtectedTrainConfig(ExperimentalTrainConfig):
    """Settings of a run that ``mxd lab protect`` made."""

    privacy: ProtectConfig


register_settings("privacy", ProtectedTrainConfig)
register_settings("experimental", ExperimentalTrainConfig)
