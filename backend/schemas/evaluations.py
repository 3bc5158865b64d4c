"""Evaluations and probes of a run."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from mxd.backend.schemas.base import Schema
from mxd.trainer.evaluation.evaluation_metrics import MetricUnit, Section


class EvaluationWarning(Schema):
    """An interpretation of the metrics."""

    level: Literal["alarm", "warning", "note"]
    """Severity."""
    text: str
    """One sentence."""


class EvaluationMetric(Schema):
    """A metric with its 95 % confidence interval, if it has one."""

    key: str
    title: str
    value: float | None
    """Null if it was not measured."""
    low: float | None
    """Lower end of the interval."""
    high: float | None
    """Upper end of the interval."""
    unit: MetricUnit
    better: Literal["lower", "higher"] | None
    """Null for a metric that no run should maximise."""
    description: str
    """Meaning of the metric."""
    group: str
    """Heading of the rows that belong together."""
    section: Section
    """faithfulness: loss and reconstruction. health: how experts are used."""
    is_baseline: bool
    """True for the loss without the run, or without its routing."""
    term: str | None
    """Entry of the glossary that explains the metric further."""


class EvaluationSummary(Schema):
    """A run evaluated on one dataset."""

    run: str
    text: str
    """Name of the dataset."""
    tokens: int
    """Number of tokens evaluated."""
    sequences: int
    """Number of sequences that they are split into."""
    created_at: datetime
    seen_text: bool
    """True if the run was trained on this dataset."""
    metrics: tuple[EvaluationMetric, ...]
    """In the order of screens."""
    warnings: tuple[EvaluationWarning, ...]


class ProbeScore(Schema):
    """Scores of a probe on test texts."""

    f1: float
    """F1 score."""
    low: float
    """Lower end of the 95 % confidence interval of F1."""
    high: float
    """Upper end of the interval."""
    balanced_accuracy: float | None
    """Null if all test texts have the same class."""
    roc_auc: float | None
    """Area under the ROC curve; null if all test texts have the same class."""
    roc_auc_low: float | None
    """Lower end of its 95 % confidence interval."""
    roc_auc_high: float | None
    """Upper end of the interval."""


class ProbedClass(Schema):
    """Probes of one class against all others."""

    name: str
    """Name of the class."""
    examples: int
    """Number of texts or tokens of the class."""
    test_examples: int
    """Number of them in the test split."""
    expert: int
    """Best expert on the validation texts."""
    top1: ProbeScore
    """Probe on that expert."""
    top5: ProbeScore
    """Probe on the best five experts."""
    neuron: ProbeScore
    """Probe on the MLP's best neuron."""
    random_gate: ProbeScore
    """Probe on the best expert of an untrained gate."""


class ProbeDifference(Schema):
    """Score of the best expert minus that of a baseline, mean over classes."""

    baseline: Literal["neuron", "random_gate"]
    metric: Literal["roc_auc", "balanced_accuracy", "f1"]
    mean: float
    low: float | None
    """Lower end of the 95 % t interval over classes; null for fewer than five classes."""
    high: float | None
    """Upper end of the interval."""
    lost: int
    """Number of classes in which the baseline scores higher."""
    classes: int
    """Number of classes with both scores."""


class ProbeSummary(Schema):
    """Probes of a run on one set of labelled texts."""

    labels: str
    """Name of the label file."""
    level: Literal["text", "token"]
    """text: activations averaged over a text. token: activations of single tokens."""
    examples: int
    """Number of texts or tokens."""
    test_examples: int
    """Number of them in the test split."""
    classes: tuple[ProbedClass, ...]
    differences: tuple[ProbeDifference, ...]
