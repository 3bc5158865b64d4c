"""Figures of evaluations. Colours are the front end's business, as in ``figures``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go
from sqlalchemy.orm import Session

from backend.errors import NoEvaluationsError
from backend.figures import as_figure
from backend.queries.evaluations import added, evaluated, newest
from backend.schemas import Figure, FigureName
from trainer.store import RunRecord

Result = Mapping[str, Any]
SMALLEST_LOSS = 1e-5
"""Nats; what adds less is drawn here on a logarithmic axis."""


def faithfulness(session: Session) -> Figure:
    """Loss that each run adds, and what it would add with its routing frozen or the MLP's mean in its place."""
    results = [record.result for record in evaluated(session)]
    kinds: tuple[tuple[str, str, str, Callable[[Result], float]], ...] = (
        ("this-run", "The run in place", "circle", lambda r: float(r["delta_ce"]["value"])),
        ("other", "its mixing frozen", "diamond-open", lambda r: float(r["ce_frozen"] - r["ce_original"])),
        (
            "reference",
            "the MLP's mean output",
            "line-ns-open",
            lambda r: float(r["ce_mean_ablated"] - r["ce_original"]),
        ),
    )
    with_text = len({result["text"] for result in results}) > 1
    names = [_named(it) + (f", on {it['text'].rsplit('/', 1)[-1]}" if with_text else "") for it in results]
    bars = error_bars((it["delta_ce"]["value"], it["delta_ce"]["low"], it["delta_ce"]["high"]) for it in results)
    traces = [
        go.Scatter(
            error_x=bars if role == "this-run" else None,
            x=[max(value(result), SMALLEST_LOSS) for result in results],
            y=names,
            name=name,
            mode="markers",
            marker={"symbol": symbol, "size": 9},
            meta={"role": role},
            hovertemplate="%{y}<br>" + name + " %{x:.4f} nats<extra></extra>",
        )
        for role, name, symbol, value in kinds
    ]
    figure = go.Figure(traces)
    figure.update_xaxes(type="log", title={"text": "Added loss, nats"})
    figure.update_yaxes(autorange="reversed", type="category")
    return as_figure("faithfulness", "What each run adds to the loss", figure, len(results))


def added_layers(session: Session) -> Figure:
    """Added loss as layers are put in one by one, a line a set of runs; dashed: the same runs alone, summed."""
    traces = []
    sets = added(session)
    for record, symbol, dash in zip(sets, SYMBOLS * len(sets), DASHES[1:] * len(sets), strict=False):
        result = record.result
        name = f"{'fine-tuned together' if result['fine_tuned'] else 'fitted alone'}, {result['runs'][0]} …"
        role = "this-run" if result["fine_tuned"] else "other"
        traces += _added_traces(result["steps"], name, role, symbol, dash)
    figure = go.Figure(traces)
    layers = sorted({step["layer"] for record in sets for step in record.result["steps"]})
    figure.update_xaxes(title={"text": "Layers in place, from the first to this one"}, tickvals=layers)
    figure.update_yaxes(title={"text": "Added loss, nats"}, rangemode="tozero")
    return as_figure("added-layers", "Added loss as layers are put in one by one", figure, points_of(figure))


def layer_errors(session: Session, run: RunRecord) -> Figure:
    """Error of a run in each layer that it writes, beside runs of these layers alone on the same text."""
    record = newest(session, run)
    own, layers = record.result, layers_of(record.result)
    others = [it.result for it in evaluated(session) if it.fingerprint == record.fingerprint and it.run_id != run.id]
    beside = [
        it
        for it in others
        if it["language_model"] == own["language_model"] and len(layers_of(it)) == 1 and it["layer"] in layers
    ]
    errors = own.get("normalised_mse_of_layers") or [own["intervals"]["normalised_mse"]]
    traces = [_errors_trace(layers, errors, [own["run"]] * len(layers), own["run"], "this-run", "circle")]
    for method, symbol in zip(sorted({it["method"] for it in beside}), SYMBOLS[1:] * len(beside), strict=False):
        found = sorted((it for it in beside if it["method"] == method), key=lambda it: (it["layer"], it["run"]))
        values = [it["intervals"]["normalised_mse"] for it in found]
        names, name = [_named(it) for it in found], f"{method} of one layer"
        traces.append(_errors_trace([it["layer"] for it in found], values, names, name, "other", symbol))
    figure = go.Figure(traces)
    figure.update_xaxes(title={"text": "Layer that is written"}, tickvals=layers)
    figure.update_yaxes(title={"text": "Normalised MSE"}, rangemode="tozero")
    return as_figure("layer-errors", f"Error of {run.name} in each layer that it writes", figure, points_of(figure))


def layers_of(result: Result) -> list[int]:
    """Layers that an evaluated run writes; what was measured before there were several says one."""
    return list(result.get("layers") or [result["layer"]])


def load(session: Session, run: RunRecord) -> Figure:
    """Lorenz curve: which share of the activations the least used experts have."""
    curve = newest(session, run).result["health"]["load"]["shares"]
    share = [place / (len(curve) - 1) for place in range(len(curve))]
    traces = [
        go.Scatter(x=share, y=curve, name=run.name, mode="lines", meta={"role": "this-run"}),
        go.Scatter(
            x=[0, 1], y=[0, 1], name="All used alike", mode="lines", line={"dash": "dot"}, meta={"role": "reference"}
        ),
    ]
    figure = go.Figure(traces)
    figure.update_xaxes(title={"text": "Share of the experts, least used first"}, range=[0, 1])
    figure.update_yaxes(title={"text": "Share of all activations"}, range=[0, 1.02])
    return as_figure("load", f"How the experts of {run.name} share the work", figure, len(curve))


def usage_evaluated(session: Session, run: RunRecord) -> Figure:
    """How many experts are used how often, on the evaluated text."""
    found = newest(session, run).result["health"]["load"]
    edges, counts = found["usage_edges"], found["usage_counts"]
    trace = go.Bar(
        x=[(low * high) ** 0.5 for low, high in pairwise(edges)],
        y=counts,
        width=[high - low for low, high in pairwise(edges)],
        name="Experts",
        meta={"role": "count"},
        hovertemplate="%{y} experts, usage around %{x:.2~e}<extra></extra>",
    )
    figure = go.Figure([trace])
    figure.update_xaxes(type="log", title={"text": "Usage, share of tokens"})
    figure.update_yaxes(title={"text": "Experts"}, rangemode="tozero")
    return as_figure("usage-evaluated", f"Usage of the experts of {run.name}", figure, sum(counts))


def or_nothing(name: FigureName, make: Callable[[], Figure]) -> Figure:
    """A figure, or one without points whose title says what to do: not to have measured yet is no error."""
    try:
        return make()
    except NoEvaluationsError as reason:
        return Figure(name=name, title=str(reason), data=[], layout={}, drawn=0, total=0)


SYMBOLS = ("circle", "square", "triangle-up", "diamond", "cross", "star", "x", "pentagon")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def _errors_trace(
    layers: list[int], errors: list[Result], names: list[str], name: str, role: str, symbol: str
) -> go.Scatter:
    return go.Scatter(
        x=layers,
        y=[error["value"] for error in errors],
        error_y=error_bars([(error["value"], error["low"], error["high"]) for error in errors]),
        text=names,
        name=name,
        mode="lines+markers" if role == "this-run" else "markers",
        marker={"symbol": symbol, "size": 8},
        meta={"role": role},
        hovertemplate="%{text}, layer %{x}: %{y:.4f}<extra></extra>",
    )


def _added_traces(steps: list[Result], name: str, role: str, symbol: str, dash: str) -> list[go.Scatter]:
    layers = [step["layer"] for step in steps]
    losses = [step["delta_ce"] for step in steps]
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
            y=[step["sum_of_single"] for step in steps],
            name=f"{name}: each alone, summed",
            mode="lines",
            line={"dash": dash},
            meta={"role": "reference"},
            hovertemplate="each alone, summed: %{y:.4f} nats<extra></extra>",
        ),
    ]


def is_at_its_own_k(result: Result) -> bool:
    """Whether a run was measured with as many experts of a token as it has."""
    return bool(result.get("fitted_k", result["k"]) == result["k"])


def _named(result: Result) -> str:
    """The run, and at which K it was measured where that is not its own."""
    return str(result["run"]) if is_at_its_own_k(result) else f"{result['run']} at K {result['k']}"


def error_bars(values: Iterable[tuple[float, float, float]]) -> dict[str, Any]:
    """From values with the ends of their intervals."""
    listed = list(values)
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - value for value, _, high in listed],
        "arrayminus": [value - low for value, low, _ in listed],
        "thickness": 1,
    }


def points_of(figure: go.Figure) -> int:
    """How many it draws."""
    return sum(len(trace.x) for trace in figure.data)
