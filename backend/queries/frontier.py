"""Frontiers: evaluations of one MLP's runs at several K.

Runs that differ only in their seed form one point with an interval. Runs that differ in anything but seed and K are on
separate lines, and the name of a line states the difference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from mxd.backend.queries.evaluations import evaluations_of_run, is_at_its_own_k, sample_of, seeds
from mxd.backend.schemas.comparison import Frontier, FrontierLine, FrontierPoint
from mxd.trainer.evaluation.seeds import SeedGroup, comparable_settings
from mxd.trainer.storage.database.tables import RunRecord
from mxd.trainer.utils.bootstrap import Bootstrap, Floats, Interval

IN_THE_NAME = ("method", "layer", "language_model")
"""Settings that a line's name states in any case."""
NOT_OF_A_LINE = ("k", "language_model_dtype")


@dataclass(eq=False)
class Line:
    """Runs that differ only in K, or one run evaluated at several K."""

    text: str
    run: str | None
    """Name of the run, if the line has only one."""
    settings: Mapping[str, Any]
    points: list[SeedGroup] = field(default_factory=list)

    @property
    def place(self) -> tuple[Any, ...]:
        """Settings whose values tell lines of the same name apart."""
        return (self.run, *(self.settings.get(name) for name in IN_THE_NAME))


def frontier(session: Session, run: RunRecord) -> Frontier | None:
    """Return the evaluations of all runs of a run's MLP on its newest sample, or None if it was not evaluated."""
    records = evaluations_of_run(session, run)
    if not records:
        return None
    sample = sample_of(records[0])
    same = ("language_model", "layer")
    lines = [line for line in lines_of(session) if all(line.settings[name] == run.config[name] for name in same)]
    for line in lines:
        line.points = [point for point in line.points if sample_of(point.records[0]) == sample]
    lines = sorted((line for line in lines if line.points), key=lambda line: run.name not in _runs_of(line))
    own = lines[0]
    own_points = {k_of(point): point for point in own.points}
    names = names_of(lines)
    result = records[0].result
    return Frontier(
        text=records[0].text,
        tokens=result["tokens"],
        sequences=result["sequences"],
        seen_text=result["seen_text"],
        lines=tuple(_frontier_line(line, name, own, own_points) for line, name in zip(lines, names, strict=True)),
    )


def _runs_of(line: Line) -> tuple[str, ...]:
    return tuple(dict.fromkeys(record.result["run"] for point in line.points for record in point.records))


def _frontier_line(line: Line, name: str, own: Line, own_points: Mapping[int, SeedGroup]) -> FrontierLine:
    runs = _runs_of(line)
    return FrontierLine(
        name=runs[0] if len(runs) == 1 else name,
        runs=runs,
        method=line.settings["method"],
        own=line is own,
        points=tuple(
            _frontier_point(point, None if line is own else own_points.get(k_of(point))) for point in line.points
        ),
    )


def _frontier_point(point: SeedGroup, own: SeedGroup | None) -> FrontierPoint:
    result = point.records[0].result
    return FrontierPoint(
        k=k_of(point),
        trained_k=result.get("trained_k", result["k"]),
        runs=tuple(record.result["run"] for record in point.records),
        parameters=result["parameters"],
        loss_increase=point.loss_increase,
        normalized_mse=point.measure("normalized_mse"),
        routing_share=_measured(point, "routing_share"),
        strict_routing_share=_measured(point, "strict_routing_share"),
        difference=None if own is None else _difference(own, point),
    )


def _measured(point: SeedGroup, name: str) -> Interval | None:
    """Return a metric, or None where an older evaluation lacks it."""
    if any(name not in record.result["intervals"] for record in point.records):
        return None
    interval = point.measure(name)
    return None if np.isnan(interval.value) else interval


def _difference(one: SeedGroup, other: SeedGroup) -> Interval:
    """Loss increase of the first minus that of the second, paired by sequence; seeds are averaged."""
    settings = one.records[0].settings
    one_S, other_S = _sequence_means(one), _sequence_means(other)
    return Bootstrap(len(one_S), settings["resamples"], settings["seed"]).mean(one_S - other_S)


def _sequence_means(point: SeedGroup) -> Floats:
    losses_RS = [np.frombuffer(record.sequences, "<f4").astype(np.float64) for record in point.records]
    return np.asarray(np.mean(losses_RS, axis=0), dtype=np.float64)


def k_of(point: SeedGroup) -> int:
    """Number of active experts per token at which the point was evaluated."""
    return int(point.records[0].result["k"])


def lines_of(session: Session) -> list[Line]:
    """Group by text, method and settings; each group has its points by K."""
    groups = seeds(session)
    results = [record.result for point in groups for record in point.records]
    several = {result["run"] for result in results if not is_at_its_own_k(result)}
    lines: dict[str, Line] = {}
    for point in chain.from_iterable(_apart(point, several) for point in groups):
        record = point.records[0]
        run = record.result["run"] if record.result["run"] in several else None
        settings = comparable_settings(point.settings, NOT_OF_A_LINE)
        line = lines.setdefault(f"{record.text} {run} {settings}", Line(record.text, run, settings))
        line.points.append(point)
    for line in lines.values():
        line.points.sort(key=k_of)
    return list(lines.values())


def _apart(point: SeedGroup, several: Collection[str]) -> list[SeedGroup]:
    """Group evaluations: runs evaluated at several K on their own, other seeds together."""
    alone = [record for record in point.records if record.result["run"] in several]
    others = tuple(record for record in point.records if record not in alone)
    return [
        *(SeedGroup((record,), point.settings) for record in alone),
        *([SeedGroup(others, point.settings)] if others else []),
    ]


def names_of(lines: Sequence[Line]) -> list[str]:
    """Name of a line: method and layer, and its difference from others of the same kind."""
    alike: dict[tuple[Any, ...], list[Line]] = defaultdict(list)
    for line in lines:
        alike[line.place].append(line)
    with_model = len({line.settings["language_model"] for line in lines}) > 1
    with_text = len({line.text for line in lines}) > 1
    return [
        _name(line, alike[line.place])
        + (f" of {_last(line.settings['language_model'])}" if with_model else "")
        + (f", on {_last(line.text)}" if with_text else "")
        for line in lines
    ]


def _last(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _name(line: Line, alike: Sequence[Line]) -> str:
    settings = [_flat(other.settings) for other in alike]
    own = _flat(line.settings)
    differ = sorted(
        {name for one in settings for name in one if any(setting.get(name) != one[name] for setting in settings)}
    )
    words = [f"{line.run} at several K" if line.run else f"{own['method']}, layer {own['layer']}"]
    words += [f"{name.replace('_', ' ')} {_value(own[name])}" for name in differ if name in own]
    return ", ".join(words)


def _value(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten groups of settings; the parents of a run are left out, because their names are too long for a legend."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= {inner: setting for inner, setting in value.items() if setting is not None}
        elif isinstance(value, list | tuple):
            flat |= {name: f"{value[0]} …"} if value else {}
        else:
            flat[name] = value
    return flat
