"""Settings of ``mxd protect``, saved with the runs that it makes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mxd.trainer.config.base import Config, Count

ProtectionLoss = Literal["kl-from-uniform", "missing-entropy"]
SUBJECT = "privacy: "
"""Prefix of the subjects of privacy measurements in the database; the names of the new runs follow."""


class ProtectConfig(Config):
    """Fine-tuning that makes predictions on chosen passages near-uniform and keeps the loss on a retain set."""

    theta: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Weight of the loss on the passages, 0 to 1; the loss on the retain set gets 1 − theta. Default: 0.5."""
    loss: ProtectionLoss = "kl-from-uniform"
    """Loss on the passages. kl-from-uniform: KL(U || p), convex in the logits. missing-entropy: KL(p || U), which is ln
    V minus the entropy. Default: kl-from-uniform."""
    steps: Annotated[int, Field(ge=1, le=10_000)] = 10
    """Maximum optimisation steps, up to 10,000; the best checkpoint is kept. Default: 10."""
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 3e-3
    """Learning rate of Adam. Default: 3e-3."""
    distance_weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Weight λ of the penalty λ/2 · ‖w − w₀‖² on the distance from the parent run. Default: 0."""
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
    store_passages: bool = False
    """Store the passages with the result, and the prediction at each of their tokens before and after. Use it only for
    passages that are not secret. Default: off."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Random seed of the retain set's order and of the bootstrap. Default: 0."""
