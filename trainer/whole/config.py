"""What determines a fine-tuning of several runs together."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trainer.config import Config, Count, OptimizerConfig, TextConfig
from trainer.in_place import PLACE

LEARNING_RATE = 3e-4
"""A third of what fitting takes: what is moved is already near."""


class FinetuneConfig(Config):
    """Several runs, each in its layer, moved together towards what the untouched language model predicts."""

    text: TextConfig
    tokens: Count
    """Tokens to fit on."""
    name: str = f"{PLACE}-whole"
    """Of the new runs; {run} is the name of the one that each begins as."""
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=LEARNING_RATE)
    next_token_weight: Annotated[float, Field(ge=0)] = 0.0
    """Of the next-token loss beside the KL divergence; 0: the untouched language model alone says what is right."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the order of the text."""
    checkpoint_every: Count = 100_000
    """Tokens between checkpoints."""
    log_every: Count = 10
    """Steps between logged metrics."""
