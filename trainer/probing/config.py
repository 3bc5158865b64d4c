"""What determines a probing of a run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trainer.config import Config, Count


class ProbeConfig(Config):
    """How well single experts tell labelled texts apart."""

    labels: str
    """A .jsonl or .csv file (also .gz or .zst) with a text and its label in each line or row."""
    label_column: str = "label"
    """Field or column of the label."""
    text_column: str = "text"
    """Field or column of the text."""
    window: Literal["first", "last"] = "first"
    """Which tokens of a longer text are read."""
    tokens: Annotated[int, Field(ge=5, le=65_536)] = 128
    """How many."""
    level: Literal["text", "token"] = "text"
    """text: coefficients averaged over a text. token: those of single tokens, four of each text."""
    limit: Count = 10_000
    """Texts at most, drawn at random."""
    candidates: Annotated[int, Field(ge=5, le=10_000)] = 50
    """Experts with the largest difference of class means that are tried, a class at a time."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the draw, the split and the random gate."""
