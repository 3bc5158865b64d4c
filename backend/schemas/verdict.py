"""All runs of one MLP side by side."""

from __future__ import annotations

from typing import Literal

from mxd.backend.schemas.base import Schema


class VerdictCell(Schema):
    """A metric of a run, with its 95 % interval."""

    key: str
    """Key of the metric."""
    value: float
    low: float | None
    """Null if the metric has no interval."""
    high: float | None


class VerdictRun(Schema):
    """A run with its metrics."""

    name: str
    method: str
    method_title: str
    parameters: int
    k: int
    """Number of active experts per token."""
    trained_tokens: int
    evaluated_tokens: int
    seen_text: bool
    """True if it was evaluated on its training text."""
    cells: tuple[VerdictCell, ...]
    """The metrics that were measured."""


class VerdictMetric(Schema):
    """A metric, and the run that leads in it."""

    key: str
    title: str
    unit: Literal["nats", "share", "plain"]
    better: Literal["lower", "higher"] | None
    """Null for a metric that no run should maximise."""
    description: str
    best: str | None
    """The run whose interval is apart from all others' on the better side; null if there is none."""


class Verdict(Schema):
    """The evaluated runs of one MLP."""

    run: str
    sentence: str
    """The result in one sentence, from the point of view of ``run``."""
    notes: tuple[str, ...]
    """Limits of the comparison, one sentence each."""
    metrics: tuple[VerdictMetric, ...]
    runs: tuple[VerdictRun, ...]
    """``run`` first, if it was evaluated."""
