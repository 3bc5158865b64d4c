"""The stored summary of ``mxd benchmark``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mxd.backend.errors import UnusableBenchmarkError
from mxd.backend.schemas import (
    BenchmarkDifference,
    BenchmarkScore,
    BenchmarkSettings,
    BenchmarkSubject,
    BenchmarkSummary,
    SubjectKind,
)
from mxd.trainer.config.analysis import BENCHMARK_FOLDER, BENCHMARK_SUMMARY
from mxd.trainer.utils.files import read_json

METRIC = "auc"
BASELINES: dict[str, SubjectKind] = {"neurons of layer ": "neurons", "random gate of layer ": "random-gate"}
"""Beginning of a baseline's name -> its kind. Names of runs have no spaces."""


class _Stored(BaseModel):
    """Part of the file. It has more fields than the dashboard shows."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class _Interval(_Stored):
    value: float
    low: float
    high: float


class _Score(_Stored):
    subject: str
    units: int
    metric: str
    mean: _Interval


class _Difference(_Score):
    better: int


class _Settings(BenchmarkSettings):
    model_config = ConfigDict(extra="ignore")


class _Summary(_Stored):
    settings: _Settings
    datasets: Annotated[tuple[str, ...], Field(min_length=1)]
    training_texts: tuple[int, int]
    test_texts: tuple[int, int]
    scores: tuple[_Score, ...]
    differences: tuple[_Difference, ...]


def stored_benchmark(data: Path) -> BenchmarkSummary | None:
    """Return the benchmark of a data folder, or None before ``mxd benchmark``.

    Raises:
        UnusableBenchmarkError: the file is damaged or not a summary of a benchmark.
    """
    path = data / BENCHMARK_FOLDER / BENCHMARK_SUMMARY
    try:
        return _described(_Summary.model_validate(read_json(path)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UnusableBenchmarkError(
            f"{path} is not a summary of a benchmark: {_reason(error)}. Run mxd benchmark again to replace it."
        ) from error


def _described(stored: _Summary) -> BenchmarkSummary:
    scores = [score for score in stored.scores if score.metric == METRIC]
    if not scores:
        raise ValueError(f"it has no scores of {METRIC}")
    subjects = dict.fromkeys(score.subject for score in scores)
    return BenchmarkSummary(
        settings=BenchmarkSettings(**stored.settings.model_dump()),
        datasets=stored.datasets,
        training_texts=stored.training_texts,
        test_texts=stored.test_texts,
        subjects=tuple(BenchmarkSubject(name=name, kind=_kind(name)) for name in subjects),
        scores=tuple(BenchmarkScore(subject=one.subject, units=one.units, **_ends(one.mean)) for one in scores),
        differences=tuple(
            BenchmarkDifference(subject=one.subject, units=one.units, better=one.better, **_ends(one.mean))
            for one in stored.differences
            if one.metric == METRIC
        ),
    )


def _kind(name: str) -> SubjectKind:
    return next((kind for prefix, kind in BASELINES.items() if name.startswith(prefix)), "run")


def _ends(mean: _Interval) -> dict[str, float]:
    return {"mean": mean.value, "low": mean.low, "high": mean.high}


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the content"
        return f"{place}: {first['msg']}"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
