"""Figures of probes: how well single experts tell labelled texts apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots
from sqlalchemy.orm import Session

from backend.errors import NoEvaluationsError
from backend.figures import as_figure
from backend.figures_of_evaluations import SYMBOLS, error_bars, points_of
from backend.queries.probes import probes, probes_of
from backend.schemas import Figure
from trainer.store import ProbeRecord, RunRecord

Result = Mapping[str, Any]
Rows = list[tuple[str, str, Result]]
"""Class as it stands on the axis, what was probed, and its score."""
COLUMNS = 3
KINDS = {"neurons": "MLP neurons", "random-gate": "random gate"}


def probing(session: Session, chosen: RunRecord | None = None) -> Figure:
    """F1 of the best single expert on each class: one run, with intervals, beside the others of each method, the MLP's
    neurons and a random gate."""
    found = probes(session)
    named = _classes(probe for probe, _ in found)
    rows: dict[str, Rows] = defaultdict(list)
    for probe, run in found:
        name = run.name if chosen is not None and run.id == chosen.id else run.method
        rows[name] += _rows(probe, named, "experts", run.name)
    for probe in {(probe.labels, probe.level): probe for probe, _ in found}.values():
        for kind, name in KINDS.items():
            rows[name] += _rows(probe, named, kind, name)
    figure = go.Figure(
        [_trace(name, rows[name], chosen, symbol) for name, symbol in zip(rows, SYMBOLS * len(rows), strict=False)]
    )
    figure.update_layout(scattermode="group", scattergap=0.25)
    figure.update_xaxes(title={"text": "F1 on test texts, best single expert"}, range=[0, 1.02])
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False, showdividers=True)
    return as_figure("probing", "One expert as a classifier", figure, points_of(figure))


def probe_coefficients(session: Session, run: RunRecord) -> Figure:
    """Coefficients of the chosen expert inside each class and outside, a panel a class."""
    own = probes_of(session, run)
    if not own:
        raise NoEvaluationsError(f"{run.name} has not been probed yet; do it with mxd probe {run.name} --labels FILE.")
    named = _classes(own)
    panels = [(named[probe.labels, probe.level][name], it) for probe in own for name, it in _experts(probe).items()]
    rows = -(-len(panels) // COLUMNS)
    titles = [f"{name}, expert {found['expert']}" for name, found in panels]
    figure = make_subplots(
        rows=rows,
        cols=COLUMNS,
        subplot_titles=titles,
        vertical_spacing=0.3 / rows,
        horizontal_spacing=0.06,
    )
    for place, (_, found) in enumerate(panels):
        for trace in _distribution(titles[place], found, place == 0):
            figure.add_trace(trace, row=place // COLUMNS + 1, col=place % COLUMNS + 1)
    figure.update_annotations(font={"size": 12})
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    figure.update_xaxes(title={"text": "Coefficient, mean over the text"}, row=rows)
    figure.update_yaxes(title={"text": "Share of test texts"}, col=1)
    return as_figure("probe-coefficients", "Coefficients inside each class and outside", figure, len(panels))


def _classes(found: Iterator[ProbeRecord] | Sequence[ProbeRecord]) -> dict[tuple[str, str], dict[str, str]]:
    """How the classes of each probe are called: by their file too, where there are several."""
    sets = {(probe.labels, probe.level): list(_experts(probe)) for probe in found}
    return {
        (labels, level): {name: name if len(sets) == 1 else f"{_stem(labels)}: {name}{_level(level)}" for name in names}
        for (labels, level), names in sets.items()
    }


def _stem(labels: str) -> str:
    return PurePath(labels).name.split(".")[0]


def _level(level: str) -> str:
    return "" if level == "text" else ", tokens"


def _experts(probe: ProbeRecord) -> dict[str, Result]:
    found: dict[str, Result] = probe.result["kinds"]["experts"]["classes"]
    return found


def _rows(probe: ProbeRecord, named: Mapping[tuple[str, str], Mapping[str, str]], kind: str, of: str) -> Rows:
    classes = named[probe.labels, probe.level]
    scores = {name: it["one"] for name, it in probe.result["kinds"][kind]["classes"].items()}
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


def _distribution(title: str, found: Result, in_legend: bool) -> Iterator[go.Scatter]:
    middle = [(low + high) / 2 for low, high in pairwise(found["edges"])]
    for field, words, role in (("inside", "texts of the class", "this-run"), ("outside", "all other texts", "other")):
        total = max(sum(found[field]), 1)
        yield go.Scatter(
            x=middle,
            y=[count / total for count in found[field]],
            text=[title] * len(middle),
            name=words,
            legendgroup=field,
            showlegend=in_legend,
            mode="lines",
            line={"shape": "hvh"},
            meta={"role": role},
            hovertemplate="%{text}<br>%{y:.0%} of " + words + " around %{x:.3f}<extra></extra>",
        )
