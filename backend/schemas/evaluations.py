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


class ProbeScore(Schema):
    """A probe on test texts, with the 95 % interval of its F1 over them."""

    f1: float
    low: float
    high: float
    balanced_accuracy: float | None
    """Null where the test texts are of one class alone; so is the next."""
    roc_auc: float | None


class ProbedClass(Schema):
    """One class against all others."""

    name: str
    examples: int
    expert: int
    """Chosen on validation texts."""
    one: ProbeScore
    five: ProbeScore
    """Of five experts together."""
    neuron: ProbeScore
    """Of the MLP's best neuron."""
    random_gate: ProbeScore
    """Of the best expert of a gate that was never fitted."""


class ProbeSummary(Schema):
    """A run on one set of labelled texts."""

    labels: str
    level: Literal["text", "token"]
    """Whether coefficients are averaged over a text, or are those of single tokens."""
    examples: int
    classes: tuple[ProbedClass, ...]


class ProbeList(Schema):
    """Those of one run, by labels."""

    probes: tuple[ProbeSummary, ...]
