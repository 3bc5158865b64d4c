"""Figures built with plotly.graph_objects. The frontend chooses the colours: traces state their role in ``meta``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots
from sqlalchemy.orm import Session

from mxd.backend.queries.overview import densities, sample
from mxd.backend.queries.runs import find_index, metrics_after
from mxd.backend.schemas.runs import Figure, FigureName
from mxd.trainer.storage.database.tables import RunRecord

MAX_POINTS = 5_000
DECADES = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 100)
DECADE_TEXTS = ("", "0.0001", "", "0.01", "", "1", "", "100")
"""Every second tick has a number, so that the numbers of a narrow figure stay horizontal."""
BINS_PER_DECADE = 5


_CURVES = (
    ("Normalised MSE", "normalized_mse", "log"),
    ("Dead share", "dead_share", "linear"),
    ("Active experts per token", "l0", "linear"),
)
_RANKS = ("Stable rank of experts", "stable_rank", "linear")
"""Metrics that are logged less often, and not for every method."""


def training(session: Session, run: RunRecord) -> Figure:
    """Training curves over tokens: error, dead and active experts, and ranks where they were measured."""
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
    return as_figure("training", f"Training of {run.name}", figure, len(metrics), len(metrics))


def density_activation(session: Session, run: RunRecord) -> Figure:
    """Density against mean activation, one point per expert."""
    find_index(session, run)
    points, total = sample(session, run, MAX_POINTS)
    trace = go.Scatter(
        x=[point.density for point in points],
        y=[point.mean for point in points],
        customdata=[[point.expert, point.label] for point in points],
        text=[point.label or point.automatic or "no clear label" for point in points],
        mode="markers",
        name="Experts",
        meta={"role": "expert"},
        hovertemplate="%{customdata[0]} %{text}<br>density %{x:.3%}, mean activation %{y:.3f}<extra></extra>",
    )
    figure = go.Figure([trace])
    figure.update_xaxes(type="log", title={"text": "Density, share of tokens"})
    figure.update_yaxes(title={"text": "Mean activation"}, rangemode="tozero")
    return as_figure("density-activation", f"Experts of {run.name}", figure, len(points), total)


def density_histogram(session: Session, run: RunRecord) -> Figure:
    """Histogram of expert densities."""
    index = find_index(session, run)
    values = densities(session, run)
    first = np.floor(np.log10(1 / max(index.tokens, 1)))
    edges = np.logspace(first, 0, round(-first) * BINS_PER_DECADE + 1)
    counts, _ = np.histogram(values.clip(edges[0], edges[-1]), edges)
    figure = density_bars(list(pairwise(edges.tolist())), counts.tolist())
    even = 100 * run.k / run.num_experts
    figure.add_shape(type="line", x0=even, x1=even, y0=0, y1=1, yref="paper", line={"width": 1.5, "dash": "dot"})
    figure.add_annotation(text="K/N", x=math.log10(even), y=1, yref="paper", yanchor="bottom", showarrow=False)
    return as_figure("density-histogram", f"Density of the experts of {run.name}", figure, len(values), len(values))


def density_bars(bins: Sequence[tuple[float, float]], counts: Sequence[int]) -> go.Figure:
    """Number of experts per bin of densities, in percent."""
    percents = [(100 * low, 100 * high) for low, high in bins]
    trace = go.Bar(
        x=[(low * high) ** 0.5 for low, high in percents],
        y=counts,
        width=[high - low for low, high in percents],
        customdata=percents,
        name="Experts",
        meta={"role": "count"},
        hovertemplate="%{y} experts, density %{customdata[0]:.2~g} to %{customdata[1]:.2~g} %<extra></extra>",
    )
    figure = go.Figure([trace])
    title = {"text": "activation density, % of tokens, log scale"}
    figure.update_xaxes(type="log", title=title, tickvals=DECADES, ticktext=DECADE_TEXTS, tickangle=0, showgrid=False)
    figure.update_yaxes(rangemode="tozero", nticks=5)
    columns = {
        "series": "",
        "point": ["activation density from, % of tokens", "to, % of tokens"],
        "x": "",
        "y": "experts",
    }
    figure.update_layout(margin={"l": 38, "r": 8, "t": 18, "b": 38}, meta={"columns": columns})
    return figure


def with_legend(figure: go.Figure) -> go.Figure:
    """Add a legend above a figure whose traces differ by marker and dash."""
    legend = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}
    figure.update_layout(showlegend=True, legend=legend, margin={"l": 56, "r": 16, "t": 12, "b": 44})
    return figure


def as_figure(name: FigureName, title: str, figure: go.Figure, drawn: int, total: int | None = None) -> Figure:
    """Convert a figure to JSON, without Plotly's default template unless ``total``."""
    parts: dict[str, Any] = figure.to_plotly_json()
    # Plotly's own template is nothing but colours and fonts.
    layout = {key: value for key, value in parts["layout"].items() if key != "template"}
    whole = drawn if total is None else total
    return Figure(name=name, title=title, data=parts["data"], layout=layout, drawn=drawn, total=whole)
