"""Figures of single-expert probes on labelled texts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots
from sqlalchemy.orm import Session

from mxd.backend.errors import NoEvaluationsError
from mxd.backend.plots.evaluations import SYMBOLS, error_bars, points_of
from mxd.backend.plots.runs import as_figure
from mxd.backend.queries.probes import probes, probes_of
from mxd.backend.schemas.runs import Figure
from mxd.trainer.storage.database.tables import ProbeRecord, RunRecord

Result = Mapping[str, Any]
Rows = list[tuple[str, str, Result]]
"""Class on the axis, the probed kind, and its score."""
COLUMNS = 3
KINDS = {"neurons": "MLP neurons", "random-gate": "random gate"}


def probing(session: Session, chosen: RunRecord | None = None) -> Figure:
    """F1 of the best single expert per class, the MLP's neurons and a random gate.

    With a chosen run: it with intervals, each other run, and the neurons of the chosen run's layer. Otherwise runs are
    grouped by method.
    """
    probe_records = probes(session)
    named = _classes(probe for probe, _ in probe_records)
    rows: dict[str, Rows] = defaultdict(list)
    for probe, run in probe_records:
        name = run.method if chosen is None else run.name
        rows[name] += _rows(probe, named, "experts", run.name)
    own = [probe for probe, run in probe_records if chosen is not None and run.id == chosen.id]
    for probe in {_texts(probe): probe for probe in own or [probe for probe, _ in probe_records]}.values():
        for kind, name in KINDS.items():
            rows[name] += _rows(probe, named, kind, name)
    figure = go.Figure(
        [_trace(name, rows[name], chosen, symbol) for name, symbol in zip(rows, SYMBOLS * len(rows), strict=False)]
    )
    figure.update_layout(scattermode="group", scattergap=0.25)
    figure.update_xaxes(title={"text": "F1 on test texts, best single expert"}, range=[0, 1.02])
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False, showdividers=True)
    return as_figure("probing", "Single experts as classifiers", figure, points_of(figure))


def probe_coefficients(session: Session, run: RunRecord) -> Figure:
    """Activations of the selected expert inside and outside each class, one panel per class."""
    own = probes_of(session, run)
    if not own:
        raise NoEvaluationsError(f"{run.name} has not been probed. Run 'mxd probe {run.name} --labels FILE'.")
    named = _classes(own)
    panels = [(named[_texts(probe)][name], panel) for probe in own for name, panel in _experts(probe).items()]
    rows = -(-len(panels) // COLUMNS)
    titles = [f"{name}, expert {one['expert']}, n = {sum(one['class_counts'])}" for name, one in panels]
    figure = make_subplots(
        rows=rows,
        cols=COLUMNS,
        subplot_titles=titles,
        vertical_spacing=0.3 / rows,
        horizontal_spacing=0.06,
    )
    for place, (_, probe_records) in enumerate(panels):
        for trace in _distribution(titles[place], probe_records, place == 0):
            figure.add_trace(trace, row=place // COLUMNS + 1, col=place % COLUMNS + 1)
    figure.update_annotations(font={"size": 12})
    columns = {"label": "class", "x": "activation, mean over the text", "y": "share of test texts"}
    figure.update_layout(meta={"columns": columns})
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    figure.update_xaxes(title={"text": "Activation, mean over the text"}, row=rows)
    figure.update_yaxes(title={"text": "Share of test texts"}, col=1)
    return as_figure("probe-coefficients", "Activations inside and outside each class", figure, len(panels))


def _classes(probe_records: Iterator[ProbeRecord] | Sequence[ProbeRecord]) -> dict[tuple[str, str], dict[str, str]]:
    """Names of the classes of each probe, with the file name if there are several probes."""
    sets = {_texts(probe): probe for probe in probe_records}
    named = {}
    for texts, probe in sets.items():
        before = "" if len(sets) == 1 else f"{PurePath(probe.labels).name.split('.')[0]}: "
        after = "" if len(sets) == 1 or probe.level == "text" else ", tokens"
        named[texts] = {name: f"{before}{name}{after}" for name in _experts(probe)}
    return named


def _texts(probe: ProbeRecord) -> tuple[str, str]:
    """Identity of the labelled texts, wherever their file lies."""
    return probe.fingerprint, probe.level


def _experts(probe: ProbeRecord) -> dict[str, Result]:
    probe_records: dict[str, Result] = probe.result["kinds"]["experts"]["classes"]
    return probe_records


def _rows(probe: ProbeRecord, named: Mapping[tuple[str, str], Mapping[str, str]], kind: str, of: str) -> Rows:
    classes = named[_texts(probe)]
    scores = {name: panel["top1"] for name, panel in probe.result["kinds"][kind]["classes"].items()}
    return [(classes[name], f"{of}, number {score['experts'][0]}", score) for name, score in scores.items()]


def _trace(name: str, rows: Rows, chosen: RunRecord | None, symbol: str) -> go.Scatter:
    is_own = chosen is not None and name == chosen.name
    scores = [score for _, _, score in rows]
    bars = error_bars((score["f1"], score["f1_low"], score["f1_high"]) for score in scores)
    return go.Scatter(
        x=[score["f1"] for score in scores],
        y=[label for label, _, _ in rows],
        error_x=bars if is_own or chosen is None else None,
        text=[of for _, of, _ in rows],
        name=name,
        orientation="h",
        offsetgroup=name,
        mode="markers",
        marker={"symbol": symbol, "size": 9 if is_own else 7},
        meta={"role": "this-run" if is_own else "reference" if name in KINDS.values() else "other"},
        hovertemplate="%{text}<br>%{y}: F1 %{x:.3f}<extra></extra>",
    )


def _distribution(title: str, probe_records: Result, in_legend: bool) -> Iterator[go.Scatter]:
    middle = [(low + high) / 2 for low, high in pairwise(probe_records["edges"])]
    for field, words, role in (
        ("class_counts", "texts of the class", "this-run"),
        ("other_counts", "all other texts", "other"),
    ):
        total = max(sum(probe_records[field]), 1)
        yield go.Scatter(
            x=middle,
            y=[count / total for count in probe_records[field]],
            text=[title] * len(middle),
            name=words,
            legendgroup=field,
            showlegend=in_legend,
            mode="lines",
            line={"shape": "hvh"},
            meta={"role": role},
            hovertemplate="%{text}<br>%{y:.0%} of " + words + " around %{x:.3f}<extra></extra>",
        )
