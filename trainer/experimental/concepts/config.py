"""Settings of the steering benchmark on concepts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mxd.trainer.config.base import Config

Strength = Annotated[float, Field(gt=0, le=1000)]
PROMPTS = (
    "I would like to tell you about",
    "This morning I found",
    "The most interesting thing is",
    "Here is what you need to know:",
    "My friend asked me about",
    "Let me explain",
    "It all started with",
    "Everybody should know that",
)


class ConceptSteeringConfig(Config):
    """Steering towards the concepts of labelled texts."""

    texts: str
    """Labelled texts: a .jsonl, .csv or .parquet file with one text and its concept per row."""
    text_column: str = "text"
    """Column of the text. Default: text."""
    label_column: str = "label"
    """Column of the concept. Default: label."""
    negative: str | None = None
    """Label of the texts without any concept. Default: the texts of all other concepts are the negative ones."""
    concepts: Annotated[int, Field(ge=1, le=1000)] = 10
    """Maximum number of concepts, most frequent first. Default: 10."""
    limit: Annotated[int, Field(ge=20, le=10_000)] = 60
    """Maximum number of texts with a concept, and of texts without it. Default: 60."""
    tokens: Annotated[int, Field(ge=5, le=2048)] = 64
    """Number of tokens to read per text. Default: 64."""
    strengths: Annotated[tuple[Strength, ...], Field(min_length=1)] = (1.0, 2.0, 4.0, 8.0)
    """Strengths, in units of the expert's 99th-percentile gate activation. Default: 1,2,4,8."""
    prompts: Annotated[tuple[str, ...], Field(min_length=2)] = PROMPTS
    """Texts to continue. Strengths are chosen on every second one and reported on the others."""
    max_tokens: Annotated[int, Field(ge=1, le=256)] = 24
    """Number of new tokens per text. Default: 24."""
    max_loss_increase: Annotated[float, Field(gt=0)] = 1.1
    """Largest loss increase of a chosen strength, in nats per token; 1.1 is a perplexity 3 times as large. Default:
    1.1."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Random seed of the split, the controls, the sampling and the bootstrap. Default: 0."""
    resamples: Annotated[int, Field(ge=100, le=100_000)] = 1000
    """Number of bootstrap resamples. Default: 1,000."""
