"""Figures of evaluations. The frontend chooses the colours, as in ``runs``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go
from sqlalchemy.orm import Session

from mxd.backend.plots.runs import as_figure
from mxd.backend.queries.evaluations import added, evaluated, is_at_its_own_k, newest
from mxd.backend.schemas.runs import Figure
from mxd.trainer.storage.database.tables import RunRecord

Result = Mapping[str, Any]
SMALLEST_LOSS = 1e-5
"""Smallest loss increase, in nats, on a logarithmic axis."""


def faithfulness(session: Session) -> Figure:
    """Loss increase of each run, next to that of its frozen routing and of the mean-ablated MLP."""
    results = sorted((record.result for record in evaluated(session)), key=lambda result: int(result["layer"]))
    kinds: tuple[tuple[str, str, str, Callable[[Result], float]], ...] = (
        ("this-run", "this run", "circle", lambda r: float(r["loss_increase"]["value"])),
        ("other", "mixing frozen at its median", "diamond-open", lambda r: float(r["ce_frozen"] - r["ce_original"])),
        (
            "reference",
            "the MLP's mean output",
            "line-ns-open",
            lambda r: float(r["ce_mean_ablated"] - r["ce_original"]),
        ),
    )
    with_text = len({result["text"] for result in results}) > 1
    names = [
        _named(evaluation) + (f", on {evaluation['text'].rsplit('/', 1)[-1]}" if with_text else "")
        for evaluation in results
    ]
    bars = error_bars(
        (evaluation["loss_increase"]["value"], evaluation["loss_increase"]["low"], evaluation["loss_increase"]["high"])
        for evaluation in results
    )
    traces = [
        go.Scatter(
            error_x=bars if role == "this-run" else None,
            x=[max(value(result), SMALLEST_LOSS) for result in results],
            y=names,
            customdata=[result["run"] for result in results],
            name=name,
            mode="markers",
            marker={"symbol": symbol, "size": 9},
            orientation="h",
            offsetgroup=role,
            meta={"role": role},
            hovertemplate="%{y}<br>" + name + " %{x:.4f} nats<extra></extra>",
        )
        for role, name, symbol, value in kinds
    ]
    figure = go.Figure(traces)
    # Marks of one run are next to one another: where routing matters, two of them have nearly the same value.
    figure.update_layout(scattermode="group")
    figure.update_xaxes(type="log", title={"text": "Loss increase, nats per token"})
    figure.update_yaxes(autorange="reversed", type="category")
    return as_figure("faithfulness", "Loss increase per run", figure, len(results))


def added_layers(session: Session) -> Figure:
    """Loss increase as layers are replaced one after the other, one line per set; dashed: the sum of single runs."""
    traces = []
    sets = added(session)
    for record, symbol, dash in zip(sets, SYMBOLS * len(sets), DASHES[1:] * len(sets), strict=False):
        result = record.result
        name = f"{'fine-tuned jointly' if result['fine_tuned'] else 'trained separately'}, {result['runs'][0]} …"
        role = "this-run" if result["fine_tuned"] else "other"
        traces += _added_traces(result["steps"], name, role, symbol, dash)
    figure = go.Figure(traces)
    layers = sorted({step["layer"] for record in sets for step in record.result["steps"]})
    figure.update_xaxes(title={"text": "Layers replaced, from the first to this one"}, tickvals=layers)
    figure.update_yaxes(title={"text": "Loss increase, nats"}, rangemode="tozero")
    return as_figure("added-layers", "Loss increase as layers are replaced one by one", figure, points_of(figure))


def load(session: Session, run: RunRecord) -> Figure:
    """Lorenz curve: share of all activations that the least active experts have."""
    curve = newest(session, run).result["health"]["load"]["lorenz_curve"]
    share = [place / (len(curve) - 1) for place in range(len(curve))]
    traces = [
        go.Scatter(x=share, y=curve, name=run.name, mode="lines", meta={"role": "this-run"}),
        go.Scatter(
            x=[0, 1], y=[0, 1], name="Equal load", mode="lines", line={"dash": "dot"}, meta={"role": "reference"}
        ),
    ]
    figure = go.Figure(traces)
    figure.update_xaxes(title={"text": "Share of experts, from the lowest density"}, range=[0, 1])
    figure.update_yaxes(title={"text": "Share of all activations"}, range=[0, 1.02])
    return as_figure("load", f"Load balance of the experts of {run.name}", figure, len(curve))


def density_evaluated(session: Session, run: RunRecord) -> Figure:
    """Histogram of expert densities on the evaluated text."""
    load = newest(session, run).result["health"]["load"]
    edges, counts = load["density_edges"], load["density_counts"]
    trace = go.Bar(
        x=[(low * high) ** 0.5 for low, high in pairwise(edges)],
        y=counts,
        width=[high - low for low, high in pairwise(edges)],
        customdata=list(pairwise(edges)),
        name="Experts",
        meta={"role": "count"},
        hovertemplate="%{y} experts, density %{customdata[0]:.2~e} to %{customdata[1]:.2~e}<extra></extra>",
    )
    figure = go.Figure([trace])
    figure.update_xaxes(type="log", title={"text": "Density, share of tokens"})
    figure.update_yaxes(title={"text": "Experts"}, rangemode="tozero")
    return as_figure("density-evaluated", f"Density of the experts of {run.name}", figure, sum(counts))


SYMBOLS = ("circle", "square", "triangle-up", "diamond", "cross", "star", "x", "pentagon")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def _added_traces(steps: list[Result], name: str, role: str, symbol: str, dash: str) -> list[go.Scatter]:
    layers = [step["layer"] for step in steps]
    losses = [step["loss_increase"] for step in steps]
    return [
        go.Scatter(
            x=layers,
            y=[loss["value"] for loss in losses],
            error_y=error_bars([(loss["value"], loss["low"], loss["high"]) for loss in losses]),
            text=[step["run"] for step in steps],
            name=name,
            mode="lines+markers",
            marker={"symbol": symbol, "size": 8},
            meta={"role": role},
            hovertemplate="%{text} and those before it: %{y:.4f} nats<extra></extra>",
        ),
        go.Scatter(
            x=layers,
            y=[step["summed_loss_increase"] for step in steps],
            name=f"{name}: each alone, summed",
            mode="lines",
            line={"dash": dash},
            meta={"role": "reference"},
            hovertemplate="each alone, summed: %{y:.4f} nats<extra></extra>",
        ),
    ]


def _named(result: Result) -> str:
    """Name of the run, with K if it was evaluated at another one."""
    return str(result["run"]) if is_at_its_own_k(result) else f"{result['run']} at K {result['k']}"


def error_bars(values: Iterable[tuple[float, float, float]]) -> dict[str, Any]:
    """Values with the ends of their intervals."""
    listed = list(values)
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - value for value, _, high in listed],
        "arrayminus": [value - low for value, low, _ in listed],
        "thickness": 1,
    }


def points_of(figure: go.Figure) -> int:
    """Number of experts drawn."""
    return sum(len(trace.x) for trace in figure.data)
