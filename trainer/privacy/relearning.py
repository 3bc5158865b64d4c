"""What comes back: fine-tuning on half of the passages, and how sure the other half is after it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trainer.privacy.measures import Certainty, certainty
from trainer.privacy.passages import Encoded
from trainer.privacy.placed import Placed, next_token
from trainer.protect_config import ProtectConfig


@dataclass(frozen=True)
class Relearning:
    """On the passages that the attacker does not have."""

    steps: int
    passages: int
    """That are looked at; the attacker fine-tunes on the others."""
    original: Certainty
    """With the runs as they were, without an attack."""
    protected: Certainty
    """With the protected runs, without an attack."""
    attacked: Certainty
    """With the protected runs after it."""
    original_attacked: Certainty
    """With the runs as they were after the same attack: what the attacker's half teaches by itself."""


def relearn(original: Placed, protected: Placed, passages: Encoded, config: ProtectConfig) -> Relearning | None:
    """Let somebody who has the weights and every other passage fine-tune C and the gate on these.

    None where there is but one passage, or no attack is wanted.
    """
    known, others = passages.some(slice(0, None, 2)), passages.some(slice(1, None, 2))
    if not len(others) or not config.attack_steps:
        return None
    return Relearning(
        config.attack_steps,
        len(others),
        certainty(original, others),
        certainty(protected, others),
        certainty(_attacked(protected, known, config), others),
        certainty(_attacked(original, known, config), others),
    )


def _attacked(placed: Placed, known: Encoded, config: ProtectConfig) -> Placed:
    mine = placed.copied()
    optimizer = torch.optim.Adam(mine.moved(), lr=config.learning_rate)
    for _ in range(config.attack_steps):
        _, gradients = mine.gradient(known, next_token, 1.0)
        for parameter, gradient in zip(mine.moved(), gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
    return mine
