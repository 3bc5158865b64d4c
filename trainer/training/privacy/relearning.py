"""Relearning attack: fine-tune on half of the passages, and measure the confidence on the other half."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mxd.trainer.config.privacy import ProtectConfig
from mxd.trainer.training.privacy.metrics import Confidence, measure_confidence
from mxd.trainer.training.privacy.passages import EncodedTexts
from mxd.trainer.training.privacy.replacement import ReplacementModel, next_token_loss


@dataclass(frozen=True)
class Relearning:
    """Confidence on the passages that the attacker does not have."""

    steps: int
    passages: int
    """Number of measured passages. The attacker fine-tunes on the others."""
    original: Confidence
    """Original runs, no attack."""
    protected: Confidence
    """Protected runs, no attack."""
    attacked: Confidence
    """Protected runs after the attack."""
    original_attacked: Confidence
    """Original runs after the same attack: the baseline for what the attacker's half reveals."""


def relearn(
    original: ReplacementModel, protected: ReplacementModel, passages: EncodedTexts, config: ProtectConfig
) -> Relearning | None:
    """Fine-tune C and the gates on every other passage, as an attacker with the weights could.

    Returns:
        None with fewer than two passages or with ``attack_steps`` 0.
    """
    known, unknown = passages.select(slice(0, None, 2)), passages.select(slice(1, None, 2))
    if not len(unknown) or not config.attack_steps:
        return None
    return Relearning(
        config.attack_steps,
        len(unknown),
        measure_confidence(original, unknown),
        measure_confidence(protected, unknown),
        measure_confidence(_attacked(protected, known, config), unknown),
        measure_confidence(_attacked(original, known, config), unknown),
    )


def _attacked(model: ReplacementModel, known: EncodedTexts, config: ProtectConfig) -> ReplacementModel:
    attacked = model.copy()
    optimizer = torch.optim.Adam(attacked.trainable_parameters(), lr=config.learning_rate)
    for _ in range(config.attack_steps):
        _, gradients = attacked.gradient(known, next_token_loss, 1.0)
        for parameter, gradient in zip(attacked.trainable_parameters(), gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
    return attacked
