"""Frontiers: evaluations of one MLP's runs at several K.

Runs that differ only in their seed form one point with an interval. Runs that differ in anything but seed and K are on
separate lines, and the name of a line states the difference.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from mxd.backend.errors import NoEvaluationsError
from mxd.backend.queries.evaluations import evaluate_command, is_at_its_own_k, newest, sample, sample_of, seeds
from mxd.backend.queries.report_text import Format, cell, in_unit, last_part, run_page, signed
from mxd.backend.schemas.runs import Head, Row, Section, SectionFigure, Table
from mxd.trainer.config.layer import method_traits
from mxd.trainer.evaluation.seeds import SeedGroup, comparable_settings
from mxd.trainer.storage.database.tables import EvaluationRecord, RunRecord
from mxd.trainer.utils.bootstrap import Bootstrap, Interval

IN_THE_NAME = ("method", "layer", "language_model")
"""Settings that a line's name states in any case."""
NOT_OF_A_LINE = ("k", "language_model_dtype")
FRONTIER_HEIGHT = 340


@dataclass(eq=False)
class Line:
    """Runs that differ only in K, or one run evaluated at several K."""

    text: str
    run: str | None
    """Name of the run, if the line has only one."""
    settings: Mapping[str, Any]
    points: list[SeedGroup] = field(default_factory=list)

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(record.result["run"] for point in self.points for record in point.records))

    @property
    def place(self) -> tuple[Any, ...]:
        """Settings whose values tell lines of the same name apart."""
        return (self.run, *(self.settings.get(name) for name in IN_THE_NAME))


def frontier_of(session: Session, run: RunRecord) -> tuple[EvaluationRecord, list[tuple[str, Line]]]:
    """Return the newest evaluation of a run, and the named lines of its MLP on the same sample, the run's own first."""
    record = newest(session, run)
    sequences = sample_of(record)
    same = ("language_model", "layer")
    lines = [line for line in lines_of(session) if all(line.settings[name] == run.config[name] for name in same)]
    for line in lines:
        line.points = [point for point in line.points if sample_of(point.records[0]) == sequences]
    lines = sorted((line for line in lines if line.points), key=lambda line: run.name not in line.runs)
    names = [line.runs[0] if len(line.runs) == 1 else name for line, name in zip(lines, names_of(lines), strict=True)]
    return record, list(zip(names, lines, strict=True))


MEASURES = (
    Head(key="loss_increase", title="Loss increase", term="loss_increase_of_run"),
    Head(key="difference", title="Loss of the current run minus this"),
    Head(key="normalized_mse", title="Normalised MSE", term="normalised_mse"),
    Head(key="routing_share", title="Routing share", term="routing_share"),
    Head(key="strict_routing_share", title="Strict routing share", term="strict_routing_share"),
)


def frontier_section(session: Session, run: RunRecord) -> Section:
    """Return loss and error of the runs of one MLP by K, on the same sequences."""
    try:
        record, lines = frontier_of(session, run)
    except NoEvaluationsError:
        verdict = (
            "Evaluate the runs of a layer on held-out text to compare them here. The command accepts several runs:"
        )
        commands = (evaluate_command(run),)
        return Section(key="frontier", title="Not evaluated yet", verdict=verdict, commands=commands)
    own = lines[0][1]
    own_points = {k_of(point): point for point in own.points}
    rows = [
        _row(name, point, None if line is own else own_points.get(k_of(point)))
        for name, line in lines
        for point in line.points
    ]
    table = Table(
        key="frontier", title="Points of the frontier", corner="Run", columns=MEASURES, rows=tuple(rows), axis="column"
    )
    fewer = sorted({max(1, round(run.k / factor)) for factor in (4, 2, 1)})
    flags = f"--k {','.join(map(str, fewer))} --dataset {record.text} --tokens {record.result['tokens']}"
    fewer_experts = f"To evaluate {run.name} with fewer active experts on the same text, run:"
    has_top_k = method_traits(run.method).has_top_k
    return Section(
        key="frontier",
        title="",
        figure=SectionFigure(
            name="loss-frontier",
            note=f"{sample(record)}; hollow: trained at a larger K, of which only the most active experts are kept",
            height=FRONTIER_HEIGHT,
        ),
        tables=(table,),
        notes=(
            "95 % intervals, bootstrap over sequences, and over seeds where a point has several. Differences are "
            "paired by sequence and not corrected for the number of K.",
            "Runs that were trained at a small K usually lose less at it than hollow points. Compare losses with care "
            "where the routing shares differ: a dense path that works without routing lowers the loss.",
            *([fewer_experts] if has_top_k else []),
        ),
        commands=(f"mxd evaluate {run.name} {flags}",) if has_top_k else (),
    )


def _row(name: str, point: SeedGroup, own: SeedGroup | None) -> Row:
    k, trained_k = k_of(point), trained_k_of(point)
    title = f"{name}, K {k}" + ("" if k == trained_k else f" (trained at {trained_k})")
    difference = None
    if own is not None:  # paired by sequence; seeds are averaged
        settings = own.records[0].settings
        own_S, point_S = (
            np.mean([np.frombuffer(record.sequences, "<f4").astype(np.float64) for record in each.records], axis=0)
            for each in (own, point)
        )
        difference = Bootstrap(len(own_S), settings["resamples"], settings["seed"]).mean(own_S - point_S)
    measures: dict[str, tuple[Interval | None, Format]] = {
        "loss_increase": (point.loss_increase, in_unit("nats")),
        "difference": (difference, partial(signed, digits=4)),
        "normalized_mse": (point.measure("normalized_mse"), in_unit("plain")),
        "routing_share": (_measured(point, "routing_share"), in_unit("share")),
        "strict_routing_share": (_measured(point, "strict_routing_share"), in_unit("share")),
    }
    return Row(
        key=title,
        title=title,
        detail=f"{point.records[0].result['parameters']:,} parameters"
        + (f", {len(point.records)} seeds" if len(point.records) > 1 else ""),
        href=run_page(point.records[0].result["run"]),
        cells=tuple(
            None if interval is None else cell(asdict(interval), form)
            for interval, form in (measures[head.key] for head in MEASURES)
        ),
    )


def _measured(point: SeedGroup, name: str) -> Interval | None:
    """Return a metric, or None where an older evaluation lacks it."""
    if any(name not in record.result["intervals"] for record in point.records):
        return None
    interval = point.measure(name)
    return None if np.isnan(interval.value) else interval


def k_of(point: SeedGroup) -> int:
    """Number of active experts per token at which the point was evaluated."""
    return int(point.records[0].result["k"])


def trained_k_of(point: SeedGroup) -> int:
    """Number of active experts per token in training."""
    result = point.records[0].result
    return int(result.get("trained_k", result["k"]))


def lines_of(session: Session) -> list[Line]:
    """Group by text, method and settings; each group has its points by K. Runs that were evaluated at several K have
    lines of their own; other seeds are together."""
    groups = seeds(session)
    results = [record.result for point in groups for record in point.records]
    several = {result["run"] for result in results if not is_at_its_own_k(result)}
    lines: dict[str, Line] = {}
    for point in groups:
        alone = [(record,) for record in point.records if record.result["run"] in several]
        others = tuple(record for record in point.records if record.result["run"] not in several)
        settings = comparable_settings(point.settings, NOT_OF_A_LINE)
        for records in (*alone, others) if others else alone:
            text, run = records[0].text, None if records is others else records[0].result["run"]
            line = lines.setdefault(f"{text} {run} {settings}", Line(text, run, settings))
            line.points.append(SeedGroup(records, point.settings))
    for line in lines.values():
        line.points.sort(key=k_of)
    return list(lines.values())


def names_of(lines: Sequence[Line]) -> list[str]:
    """Name of a line: method and layer, and its difference from others of the same kind."""
    alike: dict[tuple[Any, ...], list[Line]] = defaultdict(list)
    for line in lines:
        alike[line.place].append(line)
    with_text = len({line.text for line in lines}) > 1
    return [_name(line, alike[line.place]) + (f", on {last_part(line.text)}" if with_text else "") for line in lines]


def _name(line: Line, alike: Sequence[Line]) -> str:
    settings = [_flat(other.settings) for other in alike]
    own = _flat(line.settings)
    differ = sorted(
        {name for one in settings for name in one if any(setting.get(name) != one[name] for setting in settings)}
    )
    words = [f"{line.run} at several K" if line.run else f"{own['method']}, layer {own['layer']}"]
    for name in (name for name in differ if name in own):
        words.append(f"{name.replace('_', ' ')} {own[name]:{',' if type(own[name]) is int else ''}}")
    return ", ".join(words)


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
