"""Results of the sae-probes benchmark, as ``mxd benchmark`` writes them and the dashboard shows them."""

from dataclasses import dataclass

from mxd.trainer.utils.bootstrap import Interval
from mxd.trainer.utils.display import Documented


@dataclass(frozen=True)
class BenchmarkScore(Documented):
    """Mean over data sets of one metric, and its 95 % interval over data sets."""

    subject: str
    """Run, or ``neurons of layer L`` or ``random gate of layer L``."""
    units: int
    """Number of units per probe."""
    metric: str
    mean: Interval


@dataclass(frozen=True)
class BenchmarkDifference(Documented):
    """Paired difference between the first run and another subject: its scores minus the other's."""

    subject: str
    """The other subject."""
    units: int
    metric: str
    mean: Interval
    better: int
    """Number of data sets on which the first run scores higher."""


@dataclass(frozen=True)
class BenchmarkSettings(Documented):
    """Settings of a benchmark."""

    sae_probes: str
    """Version of the package sae-probes."""
    language_model: str
    dtype: str
    texts: int | None
    """Maximum number of texts per data set; null for all of them."""
    tokens: int
    """Maximum number of tokens read at the end of a text."""
    units: tuple[int, ...]
    """Numbers of experts, features or neurons per probe."""
    seeds: tuple[int, ...]
    """Random seeds over which scores are averaged."""
    weights: dict[str, str]
    """Digest of each run's weights."""


@dataclass(frozen=True)
class Benchmark(Documented):
    """Results of all subjects on the same data sets."""

    settings: BenchmarkSettings
    datasets: tuple[str, ...]
    training_texts: tuple[int, int]
    """Smallest and largest number of training texts of a data set."""
    test_texts: tuple[int, int]
    """Smallest and largest number of test texts of a data set."""
    scores: tuple[BenchmarkScore, ...]
    differences: tuple[BenchmarkDifference, ...]
