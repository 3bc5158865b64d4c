"""Frontiers over evaluations: loss increase and error against K and against routing share.

Runs that differ only in their seed form one point with an interval. Runs that differ in anything but seed and K are on
separate lines, and the name of a line states the difference.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import plotly.graph_objects as go
from sqlalchemy.orm import Session

from mxd.backend.plots.evaluations import DASHES, SMALLEST_LOSS, SYMBOLS, error_bars, is_at_its_own_k, points_of
from mxd.backend.plots.runs import as_figure
from mxd.backend.queries.evaluations import seeds
from mxd.backend.schemas import Figure
from mxd.trainer.evaluation.seeds import SeedGroup, comparable_settings
from mxd.trainer.utils.bootstrap import Interval

IN_THE_NAME = ("method", "layer", "language_model")
"""Settings that a line's name states in any case."""
NOT_OF_A_LINE = ("k", "language_model_dtype")
STEPS = 40
LEAST_SHARE = 0.05
"""Smallest denominator of a ratio that is shown."""
AROUND = 1.6
"""Margin of the axis beyond its smallest and largest K, as a factor."""


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
    lines = _lines(session)
    names = _names(lines)
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
        (_drawable(_added(point)) / share, share, f"{name}, K {_k(point)}")
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
    lines = _lines(session)
    styles = zip(lines, _names(lines), SYMBOLS * len(lines), DASHES * len(lines), strict=False)
    figure = go.Figure([_trace(line, words, symbol, dash, value) for line, words, symbol, dash in styles])
    ks = sorted({_k(point) for line in lines for point in line.points})
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
        x=[_k(point) for point in line.points],
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


def _k(point: SeedGroup) -> int:
    return int(point.records[0].result["k"])


def _lines(session: Session) -> list[Line]:
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
        line.points.sort(key=_k)
    return list(lines.values())


def _apart(point: SeedGroup, several: Collection[str]) -> list[SeedGroup]:
    """Group evaluations: runs evaluated at several K on their own, other seeds together."""
    alone = [record for record in point.records if record.result["run"] in several]
    others = tuple(record for record in point.records if record not in alone)
    return [
        *(SeedGroup((record,), point.settings) for record in alone),
        *([SeedGroup(others, point.settings)] if others else []),
    ]


def _names(lines: Sequence[Line]) -> list[str]:
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
