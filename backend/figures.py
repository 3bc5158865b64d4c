"""Figures, made with plotly.graph_objects. Colours are the front end's business: traces say their role in ``meta``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots
from sqlalchemy.orm import Session

from backend.errors import NoEvaluationsError
from backend.library import LoadedRun
from backend.queries.experts import find_expert
from backend.queries.overview import Indexed, indexed_runs, sample, usages
from backend.queries.runs import find_index, metrics_after
from backend.schemas import Figure, FigureName
from trainer.store import RunRecord

MAX_POINTS = 2_500
BINS_PER_DECADE = 5


_CURVES = (
    ("Normalised MSE", "normalised_mse", "log"),
    ("Dead share", "dead_share", "linear"),
    ("Active experts per token", "l0", "linear"),
)
_RANKS = ("Stable rank of experts", "stable_rank", "linear")
"""Measured more rarely, and not of every method."""


def training(session: Session, run: RunRecord) -> Figure:
    """How fitting went: error, dead and active experts, and ranks where they were measured, over tokens."""
    metrics = metrics_after(session, run, -1)
    is_ranked = any(metric.stable_rank is not None for metric in metrics)
    curves = (*_CURVES, _RANKS) if is_ranked else _CURVES
    figure = make_subplots(rows=len(curves), shared_xaxes=True, vertical_spacing=0.06)
    for row, (name, field, scale) in enumerate(curves, start=1):
        measured = [metric for metric in metrics if getattr(metric, field) is not None]
        tokens, values = [metric.tokens for metric in measured], [getattr(metric, field) for metric in measured]
        trace = go.Scatter(x=tokens, y=values, name=name, mode="lines", meta={"role": field}, showlegend=False)
        figure.add_trace(trace, row=row, col=1)
        figure.update_yaxes(title={"text": name}, type=scale, row=row, col=1)
    figure.update_xaxes(title={"text": "Tokens"}, row=len(curves), col=1)
    return as_figure("training", f"Fitting of {run.name}", figure, len(metrics), len(metrics))


def usage_strength(session: Session, run: RunRecord) -> Figure:
    """How often experts are active against how strongly, a point an expert."""
    find_index(session, run)
    points, total = sample(session, run, MAX_POINTS)
    trace = go.Scatter(
        x=[point.usage for point in points],
        y=[point.mean for point in points],
        customdata=[[point.expert, point.label] for point in points],
        mode="markers",
        name="Experts",
        meta={"role": "expert"},
        hovertemplate="%{customdata[0]} %{customdata[1]}<br>usage %{x:.3%}, mean coefficient %{y:.3f}<extra></extra>",
    )
    figure = go.Figure([trace])
    figure.update_xaxes(type="log", title={"text": "Usage, share of tokens"})
    figure.update_yaxes(title={"text": "Mean coefficient"}, rangemode="tozero")
    return as_figure("usage-strength", f"Experts of {run.name}", figure, len(points), total)


def similarity_map(session: Session, run: RunRecord, loaded: LoadedRun) -> Figure:
    """The same experts as points whose distance says how differently they write: what each does, seen from one side.

    The two directions are those in which their output scalings, each of length one, differ most (PCA).
    """
    find_index(session, run)
    points, total = sample(session, run, MAX_POINTS)
    plane = loaded.likeness.plane([point.expert for point in points])
    trace = go.Scatter(
        x=plane.x,
        y=plane.y,
        customdata=[[point.expert, point.label, point.usage, point.mean] for point in points],
        mode="markers",
        name="Experts",
        meta={"role": "expert", "by": plane.by, "variance": plane.variance},
        hovertemplate="%{customdata[0]} %{customdata[1]}<extra></extra>",
    )
    figure = go.Figure([trace])
    figure.update_xaxes(title={"text": "First direction"})
    figure.update_yaxes(title={"text": "Second direction"})
    return as_figure("similarity-map", f"Experts of {run.name} by what they do", figure, len(points), total)


def usage_histogram(session: Session, run: RunRecord) -> Figure:
    """How many experts are used how often."""
    index = find_index(session, run)
    values = usages(session, run)
    first = np.floor(np.log10(1 / max(index.tokens, 1)))
    edges = np.logspace(first, 0, round(-first) * BINS_PER_DECADE + 1)
    counts, _ = np.histogram(values.clip(edges[0], edges[-1]), edges)
    trace = go.Bar(
        x=np.sqrt(edges[:-1] * edges[1:]).tolist(),
        y=counts.tolist(),
        width=np.diff(edges).tolist(),
        customdata=np.column_stack([edges[:-1], edges[1:]]).tolist(),
        name="Experts",
        meta={"role": "count"},
        hovertemplate="%{y} experts, usage %{customdata[0]:.2~e} to %{customdata[1]:.2~e}<extra></extra>",
    )
    figure = go.Figure([trace])
    figure.update_xaxes(type="log", title={"text": "Usage, share of tokens"})
    figure.update_yaxes(title={"text": "Experts"}, rangemode="tozero")
    return as_figure("usage-histogram", f"Usage of the experts of {run.name}", figure, len(values), len(values))


def coefficients(session: Session, run: RunRecord, expert: int) -> Figure:
    """How strong one expert is where it is active."""
    record = find_expert(session, run, expert)
    width = record.histogram_high / max(len(record.histogram), 1)
    trace = go.Bar(
        x=[(place + 0.5) * width for place in range(len(record.histogram))],
        y=record.histogram,
        width=width,
        name="Active tokens",
        meta={"role": "coefficient"},
        hovertemplate="%{y} tokens, coefficient around %{x:.3f}<extra></extra>",
    )
    figure = go.Figure([trace])
    figure.update_layout(bargap=0)
    figure.update_xaxes(title={"text": "Coefficient"}, rangemode="tozero")
    figure.update_yaxes(type="log", title={"text": "Active tokens"})
    return as_figure(
        "coefficients", f"Coefficients of expert {expert}", figure, sum(record.histogram), record.active_tokens
    )


def frontier(session: Session) -> Figure:
    """Error of every indexed run over K, a line a method on the same layer."""
    runs = indexed_runs(session)
    if not runs:
        raise NoEvaluationsError("No run has been indexed, so there is nothing to compare; index one with mxd index.")
    lines: dict[tuple[str, str, int], list[Indexed]] = defaultdict(list)
    for run in runs:
        lines[run.method, run.language_model, run.layer].append(run)
    figure = go.Figure([_line(method, layer, members) for (method, _, layer), members in lines.items()])
    figure.update_xaxes(type="log", title={"text": "K, most active experts per token"})
    figure.update_yaxes(type="log", title={"text": "Normalised MSE"})
    return as_figure("frontier", "Normalised MSE on each run's own indexed text", figure, len(runs), len(runs))


def _line(method: str, layer: int, runs: Sequence[Indexed]) -> go.Scatter:
    return go.Scatter(
        x=[run.k for run in runs],
        y=[run.normalised_mse for run in runs],
        customdata=[[run.run, run.language_model, run.num_experts] for run in runs],
        mode="lines+markers",
        name=f"{method}, layer {layer} of {runs[0].language_model}",
        meta={"role": "method", "method": method},
        hovertemplate="%{customdata[0]}<br>K %{x}, N %{customdata[2]}, normalised MSE %{y:.4f}<extra></extra>",
    )


def as_figure(name: FigureName, title: str, figure: go.Figure, drawn: int, total: int | None = None) -> Figure:
    """What travels of a figure, without the colours and fonts of Plotly's own template; all where no ``total``."""
    parts: dict[str, Any] = figure.to_plotly_json()
    # Plotly's own template is nothing but colours and fonts.
    layout = {key: value for key, value in parts["layout"].items() if key != "template"}
    whole = drawn if total is None else total
    return Figure(name=name, title=title, data=parts["data"], layout=layout, drawn=drawn, total=whole)
