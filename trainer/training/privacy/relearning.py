"""Relearning attack: fine-tune on half of the passages, and measure the confidence on the other half."""

from __future__ import annotations

import torch

from mxd.trainer.config.privacy import ProtectConfig
from mxd.trainer.training.privacy.metrics import measure_confidence
from mxd.trainer.training.privacy.passages import EncodedTexts
from mxd.trainer.training.privacy.replacement import ReplacementModel, next_token_loss
from mxd.trainer.training.privacy.results import Relearning


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
