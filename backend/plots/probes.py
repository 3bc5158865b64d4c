"""Figures of single-expert probes on labelled texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots
from sqlalchemy.orm import Session

from mxd.backend.errors import NoEvaluationsError
from mxd.backend.plots.runs import as_figure, with_legend
from mxd.backend.queries.probes import PANELS_PER_ROW, probes_of
from mxd.backend.schemas.runs import Figure
from mxd.trainer.storage.database.tables import ProbeRecord, RunRecord

Result = Mapping[str, Any]


def probe_activations(session: Session, run: RunRecord) -> Figure:
    """Activations of the selected expert inside and outside each class, one panel per class."""
    own = probes_of(session, run)
    if not own:
        raise NoEvaluationsError(f"{run.name} has not been probed. Run 'mxd probe {run.name} --labels FILE'.")
    named = _classes(own)
    panels = [(named[_texts(probe)][name], panel) for probe in own for name, panel in _experts(probe).items()]
    rows = -(-len(panels) // PANELS_PER_ROW)
    titles = [f"{name}, expert {one['expert']}, n = {sum(one['class_counts'])}" for name, one in panels]
    figure = make_subplots(
        rows=rows,
        cols=PANELS_PER_ROW,
        subplot_titles=titles,
        vertical_spacing=0.3 / rows,
        horizontal_spacing=0.06,
    )
    for place, (_, probe_records) in enumerate(panels):
        for trace in _distribution(titles[place], probe_records, place == 0):
            figure.add_trace(trace, row=place // PANELS_PER_ROW + 1, col=place % PANELS_PER_ROW + 1)
    figure.update_annotations(font={"size": 12})
    columns = {"label": "class", "x": "activation, mean over the text", "y": "share of test texts"}
    figure.update_layout(meta={"columns": columns})
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    figure.update_xaxes(title={"text": "Activation, mean over the text"}, row=rows)
    figure.update_yaxes(title={"text": "Share of test texts"}, col=1)
    return as_figure("probe-activations", "Activations inside and outside each class", with_legend(figure), len(panels))


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
