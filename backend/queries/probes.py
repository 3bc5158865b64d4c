"""Stored results of single-expert probes and of ``mxd benchmark``."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.errors import NoEvaluationsError
from mxd.backend.schemas.evaluations import ProbedClass, ProbeDifference, ProbeScore, ProbeSummary
from mxd.trainer.config.analysis import BENCHMARK_FOLDER, BENCHMARK_SUMMARY
from mxd.trainer.evaluation.benchmark_results import Benchmark
from mxd.trainer.storage.database.tables import ProbeRecord, RunRecord
from mxd.trainer.utils.files import read_json

Result = Mapping[str, Any]
Z95 = 1.96
"""Quantile of the normal distribution for a 95 % interval."""
BISECTIONS = 40
Baseline = Literal["neuron", "random_gate"]
Metric = Literal["roc_auc", "balanced_accuracy", "f1"]
MIN_CLASSES = 5
"""With fewer classes, an interval over classes says little."""


def probes(session: Session) -> list[tuple[ProbeRecord, RunRecord]]:
    """Return all probes, sorted by label file and method.

    Raises:
        NoEvaluationsError: there are no probes.
    """
    query = select(ProbeRecord, RunRecord).join(RunRecord, RunRecord.id == ProbeRecord.run_id)
    order = (ProbeRecord.labels, ProbeRecord.level, RunRecord.method, RunRecord.k, RunRecord.name)
    score = [(probe, run) for probe, run in session.execute(query.order_by(*order))]
    if not score:
        raise NoEvaluationsError("No run has been probed yet. Run 'mxd probe NAME --labels FILE'.")
    return score


def probes_of(session: Session, run: RunRecord) -> list[ProbeRecord]:
    """Return the probes of a run, sorted by label file."""
    query = select(ProbeRecord).where(ProbeRecord.run_id == run.id)
    return list(session.scalars(query.order_by(ProbeRecord.labels, ProbeRecord.level)))


def described_probes(session: Session, run: RunRecord) -> tuple[ProbeSummary, ...]:
    """Return the probes of a run with the scores of each class."""
    return tuple(_summary(probe) for probe in probes_of(session, run))


def _summary(probe: ProbeRecord) -> ProbeSummary:
    kinds = {kind: score["classes"] for kind, score in probe.result["kinds"].items()}
    classes = tuple(
        _probed_class(name, *(kinds[kind][name] for kind in ("experts", "neurons", "random-gate")))
        for name in kinds["experts"]
    )
    return ProbeSummary(
        labels=probe.labels,
        level=probe.result["level"],
        examples=probe.result["examples"],
        test_examples=sum(_test_sizes(next(iter(kinds["experts"].values())))),
        classes=classes,
        differences=tuple(_differences(classes)),
    )


def _differences(classes: Sequence[ProbedClass]) -> Iterator[ProbeDifference]:
    for baseline, metric in itertools.product(get_args(Baseline), get_args(Metric)):
        pairs = [(getattr(c.top1, metric), getattr(getattr(c, baseline), metric)) for c in classes]
        values = [ours - theirs for ours, theirs in pairs if ours is not None and theirs is not None]
        if not values:
            continue
        mean, margin = statistics.fmean(values), None
        if len(values) >= MIN_CLASSES:
            from scipy.special import stdtrit

            margin = float(stdtrit(len(values) - 1, 0.975)) * statistics.stdev(values) / math.sqrt(len(values))
        yield ProbeDifference(
            baseline=baseline,
            metric=metric,
            mean=mean,
            low=None if margin is None else mean - margin,
            high=None if margin is None else mean + margin,
            lost=sum(value < 0 for value in values),
            classes=len(values),
        )


def _probed_class(name: str, experts: Result, neurons: Result, random_gate: Result) -> ProbedClass:
    sizes = _test_sizes(experts)
    return ProbedClass(
        name=name,
        examples=experts["examples"],
        test_examples=sizes[0],
        expert=experts["expert"],
        top1=_score(experts["top1"], sizes),
        top5=_score(experts["top5"], sizes),
        neuron=_score(neurons["top1"], sizes),
        random_gate=_score(random_gate["top1"], sizes),
    )


def _test_sizes(probed: Result) -> tuple[int, int]:
    """Numbers of test texts of the class and of all others."""
    return sum(probed["class_counts"]), sum(probed["other_counts"])


def _score(score: Result, sizes: tuple[int, int]) -> ProbeScore:
    low, high = roc_auc_interval(score["roc_auc"], *sizes)
    return ProbeScore(
        f1=score["f1"],
        low=score["f1_low"],
        high=score["f1_high"],
        balanced_accuracy=score["balanced_accuracy"],
        roc_auc=score["roc_auc"],
        roc_auc_low=low,
        roc_auc_high=high,
    )


def roc_auc_interval(area: float | None, positives: int, negatives: int) -> tuple[float | None, float | None]:
    """95 % interval of an area under the ROC curve; stored probes have no bootstrap of it.

    Its ends are the true areas from which the measured one is 1.96 standard errors away, as in Wilson's interval of a
    share. Close to 1, an interval of equal width on both sides is too narrow.
    """
    if area is None:
        return None, None
    low, high = (_boundary(area, end, positives, negatives) for end in (0.0, 1.0))
    return low, high


def _boundary(area: float, end: float, positives: int, negatives: int) -> float:
    inside, outside = area, end
    for _ in range(BISECTIONS):
        middle = (inside + outside) / 2
        # Standard error of the area under an ROC curve, after Hanley and McNeil (1982).
        of_positives, of_negatives = middle / (2 - middle) - middle**2, 2 * middle**2 / (1 + middle) - middle**2
        variance = middle * (1 - middle) + (positives - 1) * of_positives + (negatives - 1) * of_negatives
        is_inside = abs(area - middle) <= Z95 * math.sqrt(variance / (positives * negatives))
        inside, outside = (middle, outside) if is_inside else (inside, middle)
    return (inside + outside) / 2


def stored_benchmark(data: Path) -> tuple[Benchmark | None, str | None]:
    """Return the benchmark of a data folder, if there is one, and why it cannot be read."""
    path = data / BENCHMARK_FOLDER / BENCHMARK_SUMMARY
    try:
        return TypeAdapter(Benchmark).validate_python(read_json(path)), None
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError) as error:
        return None, (
            f"{path.name} in {BENCHMARK_FOLDER} is not a summary of a benchmark: {_reason(error)}. Run 'mxd benchmark' "
            "again to replace it."
        )


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the content"
        return f"{place}: {first['msg']}"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
