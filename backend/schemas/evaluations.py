"""Evaluations of runs on held-out text."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from backend.schemas.base import Schema


class Verdict(Schema):
    """What a figure means, in a sentence."""

    level: Literal["alarm", "warning", "note"]
    text: str


class Fact(Schema):
    """One figure, with its 95 % interval where there is one."""

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    unit: Literal["nats", "share", "count", "plain"]
    meaning: str


class EvaluationSummary(Schema):
    """A run on one text."""

    run: str
    text: str
    tokens: int
    created_at: datetime
    seen_text: bool
    """Whether the run was fitted on this text."""
    faithfulness: tuple[Fact, ...]
    health: tuple[Fact, ...]
    verdicts: tuple[Verdict, ...]


class EvaluationList(Schema):
    """Those of one run, the newest first."""

    evaluations: tuple[EvaluationSummary, ...]
