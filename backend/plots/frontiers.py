"""Frontiers over evaluations: loss increase and error against K and against routing share.

Runs that differ only in their seed form one point with an interval. Runs that differ in anything but seed and K are on
separate lines, and the name of a line states the difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go
from sqlalchemy.orm import Session

from mxd.backend.plots.evaluations import DASHES, SMALLEST_LOSS, SYMBOLS, error_bars, points_of
from mxd.backend.plots.runs import as_figure
from mxd.backend.queries.frontier import Line, k_of, lines_of, names_of
from mxd.backend.schemas.runs import Figure
from mxd.trainer.evaluation.seeds import SeedGroup
from mxd.trainer.utils.bootstrap import Interval

STEPS = 40
LEAST_SHARE = 0.05
"""Smallest denominator of a ratio that is shown."""
AROUND = 1.6
"""Margin of the axis beyond its smallest and largest K, as a factor."""


def loss_frontier(session: Session) -> Figure:
    """Loss increase over K."""
    return _over_k(session, "loss-frontier", "Loss increase against K", "Loss increase, nats", _added)


def error_frontier(session: Session) -> Figure:
    """Normalised MSE over K."""
    return _over_k(session, "error-frontier", "Normalised MSE against K", "Normalised MSE", _error)


def routing_frontier(session: Session) -> Figure:
    """Loss increase against routing share; the best runs are at the lower right.

    Leaving part of the MLP in place lowers routing share and loss increase of any layer, both roughly with the square
    of the layer's part. If all runs replace the same MLPs on the same text, a line shows that trade-off for the best
    run.
    """
    lines = lines_of(session)
    names = names_of(lines)
    traces = []
    for line, name, symbol in zip(lines, names, SYMBOLS * len(lines), strict=False):
        shares = [point.measure("routing_share") for point in line.points]
        losses = [_added(point) for point in line.points]
        traces.append(
            go.Scatter(
                x=[share.value for share in shares],
                y=[_drawable(loss) for loss in losses],
                error_x=_bars(shares),
                error_y=_bars(losses),
                customdata=_customdata(line),
                name=name,
                mode="markers",
                marker={"symbol": symbol, "size": 9},
                meta={"role": "method", "method": line.settings["method"]},
                hovertemplate="%{customdata[0]}<br>routing share %{x:.2f}, added loss %{y:.4f} nats<extra></extra>",
            )
        )
    figure = go.Figure([*_with_part_of_the_mlp(lines, names), *traces])
    figure.update_xaxes(title={"text": "Routing share"}, range=[-0.05, 1.1])
    figure.update_yaxes(type="log", title={"text": "Loss increase, nats"})
    return as_figure(
        "routing-frontier", "Loss increase against routing share", figure, sum(len(line.points) for line in lines)
    )


def _with_part_of_the_mlp(lines: Sequence[Line], names: Sequence[str]) -> list[go.Scatter]:
    """Trade-off line from the best point to zero."""
    of_one_mlp = ("language_model", "layer")
    if len({(line.text, *(line.settings.get(name) for name in of_one_mlp)) for line in lines}) != 1:
        return []
    points = [(name, point) for line, name in zip(lines, names, strict=True) for point in line.points]
    each = [
        (_drawable(_added(point)) / share, share, f"{name}, K {k_of(point)}")
        for name, point in points
        if (share := point.measure("routing_share").value) > LEAST_SHARE
    ]
    if len(points) < 2 or not each:
        return []
    slope, share, name = min(each)
    shares = [share * step / STEPS for step in range(1, STEPS + 1)]
    return [
        go.Scatter(
            x=shares,
            y=[slope * at for at in shares],
            mode="lines",
            line={"dash": "dot", "width": 1},
            name=f"{name}, with part of the MLP left in place",
            meta={"role": "reference"},
            hoverinfo="skip",
        )
    ]


def _added(point: SeedGroup) -> Interval:
    return point.loss_increase


def _error(point: SeedGroup) -> Interval:
    return point.measure("normalized_mse")


def _over_k(session: Session, name: Any, title: str, axis: str, value: Callable[[SeedGroup], Interval]) -> Figure:
    lines = lines_of(session)
    styles = zip(lines, names_of(lines), SYMBOLS * len(lines), DASHES * len(lines), strict=False)
    figure = go.Figure([_trace(line, words, symbol, dash, value) for line, words, symbol, dash in styles])
    ks = sorted({k_of(point) for line in lines for point in line.points})
    figure.update_xaxes(
        type="log",
        title={"text": "K, most active experts per token"},
        tickvals=ks,
        ticktext=[str(k) for k in ks],
        range=[math.log10(ks[0] / AROUND), math.log10(ks[-1] * AROUND)],
    )
    figure.update_yaxes(type="log", title={"text": axis})
    return as_figure(name, title, figure, points_of(figure))


def _trace(line: Line, name: str, symbol: str, dash: str, value: Callable[[SeedGroup], Interval]) -> go.Scatter:
    values = [value(point) for point in line.points]
    return go.Scatter(
        x=[k_of(point) for point in line.points],
        y=[_drawable(one) for one in values],
        error_y=_bars(values),
        customdata=_customdata(line),
        mode="lines+markers",
        line={"dash": dash},
        marker={"symbol": symbol, "size": 8},
        name=name,
        meta={"role": "method", "method": line.settings["method"]},
        hovertemplate="%{customdata[0]}, %{customdata[1]:,} parameters<br>K %{x}, %{y:.4f}<extra></extra>",
    )


def _customdata(line: Line) -> list[list[Any]]:
    return [[", ".join(point.names), point.records[0].result["parameters"], line.text] for point in line.points]


def _bars(values: Sequence[Interval]) -> dict[str, Any]:
    return error_bars((one.value, one.low, one.high) for one in values)


def _drawable(value: Interval) -> float:
    return max(value.value, SMALLEST_LOSS)
