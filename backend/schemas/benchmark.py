"""Results of ``mxd benchmark``: ROC-AUC of sparse probes on the data sets of sae-probes."""

from __future__ import annotations

from typing import Literal

from mxd.backend.schemas.base import Schema

SubjectKind = Literal["run", "neurons", "random-gate"]


class BenchmarkSettings(Schema):
    """Settings of a benchmark."""

    sae_probes: str
    """Version of the package sae-probes."""
    language_model: str
    texts: int | None
    """Maximum number of texts per data set; null for all of them."""
    tokens: int
    """Maximum number of tokens read at the end of a text."""
    units: tuple[int, ...]
    """Numbers of experts, features or neurons per probe."""
    seeds: tuple[int, ...]
    """Random seeds over which scores are averaged."""


class BenchmarkSubject(Schema):
    """A run, the neurons of an MLP, or an untrained gate."""

    name: str
    kind: SubjectKind


class BenchmarkScore(Schema):
    """Mean ROC-AUC over data sets."""

    subject: str
    units: int
    """Number of units per probe."""
    mean: float
    low: float
    """Lower end of the 95 % confidence interval over data sets."""
    high: float
    """Upper end of the interval."""


class BenchmarkDifference(BenchmarkScore):
    """ROC-AUC of the first subject minus that of another one, paired by data set."""

    better: int
    """Number of data sets on which the first subject scores higher."""


class BenchmarkSummary(Schema):
    """Results of all subjects on the same data sets."""

    settings: BenchmarkSettings
    datasets: tuple[str, ...]
    """Names of the data sets."""
    training_texts: tuple[int, int]
    """Smallest and largest number of training texts of a data set."""
    test_texts: tuple[int, int]
    """Smallest and largest number of test texts of a data set."""
    subjects: tuple[BenchmarkSubject, ...]
    """The first one is compared with each of the others."""
    scores: tuple[BenchmarkScore, ...]
    differences: tuple[BenchmarkDifference, ...]


class BenchmarkResponse(Schema):
    """Results of the benchmark in the data folder."""

    benchmark: BenchmarkSummary | None
    """Null before ``mxd benchmark``."""
