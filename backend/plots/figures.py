"""Figures built with plotly.graph_objects. The frontend chooses the colours: traces state their role in ``meta``."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.database.annotations import labels_of
from mxd.backend.database.engine import among
from mxd.backend.errors import NoEvaluationsError
from mxd.backend.queries.automatic_labels import clear_labels
from mxd.backend.queries.evaluations import added, evaluations_of_run, frontier_of, k_of, newest, trained_k_of
from mxd.backend.queries.probes import PANELS_PER_ROW, probes_of
from mxd.backend.queries.runs import find_index, find_run, metrics_after
from mxd.backend.schemas.runs import CurveName, Figure, FigureName
from mxd.trainer.errors import UserError
from mxd.trainer.evaluation.steering import median_results
from mxd.trainer.inference.units import column_values
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import RunRecord, SteeringStrengthRecord

MAX_POINTS = 5_000
DECADES = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 100)
DECADE_TEXTS = ("", "0.0001", "", "0.01", "", "1", "", "100")
"""Every second tick has a number, so that the numbers of a narrow figure stay horizontal."""
BINS_PER_DECADE = 5


CURVES: Mapping[CurveName, tuple[str, str, int]] = {
    "normalized_mse": ("Normalised MSE", "log", 4),
    "dead_share": ("Dead share", "linear", 4),
    "l0": ("Active experts per token", "linear", 2),
    "stable_rank": ("Stable rank of experts", "linear", 2),
    "tokens_per_second": ("Tokens per second", "linear", 0),
}
"""Training metric -> title, scale and decimals."""
WINDOW = 20
"""Most points of a moving average, which is over the last tenth of them, so that the steep early fall stays visible."""
MILLION = 1_000_000


def training(session: Session, run: RunRecord, curve: CurveName, compared: RunRecord | None) -> Figure:
    """One training metric with its moving average and the value on held-out text, beside another run's."""
    title, scale, digits = CURVES[curve]
    end = run.target_tokens / MILLION
    figure, ends, averages = go.Figure(), list[tuple[str, str, float, float]](), list[float]()
    text = {"hoverinfo": "skip", "cliponaxis": False}
    held_out = [it.result for it in evaluations_of_run(session, run) if "intervals" in it.result]
    if curve == "normalized_mse" and held_out:
        error = held_out[0]["intervals"][curve]["value"]
        place = {"x": [0.01 * end, end], "y": [error, error], "textposition": "top right"}  # beside the axis
        texts = {"text": [f"held-out {error:.4f}", ""], "name": "held-out text", "mode": "lines+text"}
        figure.add_scatter(**place, **texts, **text, line={"dash": "dot"}, meta={"role": "reference"})
    for one, role in ((compared, "other"), (run, "this-run")):
        metrics = [] if one is None else metrics_after(session, one, -1)
        points = [(it.tokens / MILLION, getattr(it, curve)) for it in metrics if getattr(it, curve) is not None]
        x, y = [at for at, _ in points], [value for _, value in points]
        windows = (y[max(0, i + 1 - max(1, min(WINDOW, math.ceil(i / 10)))) : i + 1] for i in range(len(y)))
        averages = [float(np.mean(window)) for window in windows]
        lines = {"raw": ("as logged", y), role: ("moving average", averages)}
        for drawn, (what, values) in lines.items():
            if one is None or (one is not run and drawn == "raw"):
                continue
            name = f"{one.name}, {what}"
            hover = f"%{{y:.{digits}f}} at %{{x:.2f}} M tokens<extra>{name}</extra>"
            figure.add_scatter(x=x, y=values, name=name, mode="lines", meta={"role": drawn}, hovertemplate=hover)
        # Tables have the last logged value, not that of the moving average.
        ends += [(one.name, role, *point) for point in points if point[0] <= end and one is not None][-1:]
    for name, role, at, value in ends:
        others = [(other_value, other) for other, _, _, other_value in ends if other != name]
        side = "middle" if not others else "top" if (value, name) > others[0] else "bottom"
        texts = {"text": [f"{value:.{digits}f}", name if others else ""], "mode": "markers+text"}
        place = {"x": [at, at], "y": [value, value], "textposition": [f"{side} right", f"{side} left"]}
        figure.add_scatter(**place, **texts, **text, marker={"size": 6}, meta={"role": role})
    figure.update_xaxes(title={"text": "training tokens, millions"}, range=[0, end], showgrid=False)
    figure.update_yaxes(type=scale, **(log_ticks(averages) if scale == "log" else {"rangemode": "tozero"}))
    figure.update_layout(margin={"l": 48, "r": 52, "t": 12, "b": 38}, meta={"columns": {"y": title}})
    return as_figure("training", f"{title} of {run.name}", figure, len(averages))


def density_activation(session: Session, run: RunRecord) -> Figure:
    """Density against mean activation, one point per active expert. Of a larger run, the points are the outliers of
    both and of steerability, the experts with a user label, and a fixed random sample of the others."""
    find_index(session, run)
    active = (ExpertRecord.run_id == run.id, ExpertRecord.density > 0)
    experts = np.array(session.scalars(select(ExpertRecord.expert).where(*active)).all(), dtype=np.int64)
    chosen = experts
    columns = (ExpertRecord.density, ExpertRecord.mean_activation, ExpertRecord.steerability)
    if len(experts) > MAX_POINTS:
        orders = [order for column in columns for order in (column.asc(), column.desc())]
        extremes = select(ExpertRecord.expert).where(*active).limit(MAX_POINTS // 10 // len(orders))
        outliers = [expert for order in orders for expert in session.scalars(extremes.order_by(order))]
        first = np.intersect1d([*outliers, *labels_of(session, run.name)], experts)[:MAX_POINTS]
        others = np.setdiff1d(experts, first)
        chosen = np.r_[first, np.random.default_rng(0).choice(others, size=MAX_POINTS - len(first), replace=False)]
    ids = chosen.tolist()
    query = select(ExpertRecord.expert, *columns).where(active[0], among(session, ExpertRecord.expert, ids))
    points = session.execute(query.order_by(ExpertRecord.expert)).all()
    labels, named = labels_of(session, run.name, ids), clear_labels(session, run, ids)
    trace = go.Scatter(
        x=[density for _, density, *_ in points],
        y=[mean for *_, mean, _ in points],
        customdata=[[expert, labels.get(expert), steerability] for expert, *_, steerability in points],
        text=[labels.get(expert) or named.get(expert) or "no clear label" for expert, *_ in points],
        mode="markers",
        name="Experts",
        meta={"role": "expert"},
        hovertemplate="%{customdata[0]} %{text}<br>density %{x:.3%}, mean activation %{y:.3f}<extra></extra>",
    )
    figure = go.Figure([trace])
    figure.update_xaxes(type="log", title={"text": "Density, share of tokens"})
    figure.update_yaxes(title={"text": "Mean activation"}, rangemode="tozero")
    return as_figure("density-activation", f"Experts of {run.name}", figure, len(points), len(experts))


def density_histogram(session: Session, run: RunRecord) -> Figure:
    index = find_index(session, run)
    values = column_values(session, run, ExpertRecord.density)
    values = values[values > 0]
    first = np.floor(np.log10(1 / max(index.tokens, 1)))
    edges = np.logspace(first, 0, round(-first) * BINS_PER_DECADE + 1)
    counts, _ = np.histogram(values.clip(edges[0], edges[-1]), edges)
    figure = density_bars(list(pairwise(edges.tolist())), counts.tolist())
    even, largest = 100 * run.k / run.num_experts, int(counts.max(initial=1))
    figure.add_scatter(
        x=[even, even],
        y=[0, 1.05 * largest],
        text=["", "K/N"],
        mode="lines+text",
        textposition="top center",
        line={"width": 1.5, "dash": "dot"},
        hoverinfo="skip",
        cliponaxis=False,
        meta={"role": "this-run"},
    )
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
    figure.update_yaxes(rangemode="tozero", nticks=5, title={"text": "experts"})
    columns = {
        "series": "",
        "point": ["activation density from, % of tokens", "to, % of tokens"],
        "x": "",
        "y": "experts",
    }
    figure.update_layout(margin={"l": 52, "r": 8, "t": 24, "b": 38}, meta={"columns": columns})
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


SYMBOLS = ("circle", "square", "triangle-up", "diamond", "cross", "star", "x", "pentagon")
SHIFT = 0.006
"""Distance of lines at one K, as a share of the range of K."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def loss_frontier(session: Session, run: RunRecord) -> Figure:
    """Loss increase over K, one line per run of the MLP; hollow points keep fewer experts than the run's training."""
    _, lines = frontier_of(session, run)
    points = [point for _, line in lines for point in line.points]
    ks = sorted({k_of(point) for point in points})
    decades = math.log10(ks[-1] / ks[0]) or 1
    traces = []
    for i, ((name, line), symbol, dash) in enumerate(
        zip(lines, SYMBOLS * len(lines), DASHES * len(lines), strict=False)
    ):
        # Points of one K are beside one another, so that no interval hides another.
        shift = 10 ** (SHIFT * decades * (i - (len(lines) - 1) / 2))
        losses = [point.loss_increase for point in line.points]
        pairs = [(k_of(point), trained_k_of(point)) for point in line.points]
        trace = go.Scatter(
            x=[k * shift for k, _ in pairs],
            y=[loss.value for loss in losses],
            error_y=error_bars((loss.value, loss.low, loss.high) for loss in losses),
            customdata=[(point.records[0].result["run"], k_of(point)) for point in line.points],
            text=[
                f"K {k}{'' if k == trained_k else f', trained at {trained_k}'}, "
                f"{point.records[0].result['parameters']:,} parameters"
                for point, (k, trained_k) in zip(line.points, pairs, strict=True)
            ],
            mode="lines+markers",
            line={"dash": dash},
            marker={"symbol": [f"{symbol}-open" if k < trained_k else symbol for k, trained_k in pairs], "size": 9},
            name=name,
            meta={"role": "this-run" if line is lines[0][1] else "other"},
            hovertemplate="%{fullData.name}<br>%{text}<br>%{y:.4f} nats per token<extra></extra>",
        )
        traces.append(trace)
    figure = go.Figure(traces)
    figure.update_layout(
        meta={"columns": {"series": "run", "point": ["", "K"], "label": "point", "x": "", "y": "loss increase, nats"}}
    )
    figure.update_xaxes(
        type="log",
        title={"text": "K, experts active per token, log scale"},
        tickvals=ks,
        ticktext=[str(k) for k in ks],
        showgrid=False,
    )
    ends = [end for point in points for end in (point.loss_increase.low, point.loss_increase.high)]
    figure.update_yaxes(type="log", title={"text": "loss increase, nats per token, log scale"}, **log_ticks(ends))
    return as_figure("loss-frontier", "Loss increase against K", with_legend(figure), len(points))


SPARSE_DIGITS = (1, 2, 5)
DENSE_DIGITS = (1, 1.5, 2, 3, 4, 5, 7)
DENSEST_DIGITS = (1, 1.2, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9)


def log_ticks(values: Sequence[float]) -> dict[str, Any]:
    """Return ticks of a logarithmic axis with plain numbers; denser over a short range."""
    positive = [value for value in values if value > 0]
    if not positive:
        return {}
    low, high = min(positive), max(positive)
    digits = SPARSE_DIGITS if high / low > 8 else DENSE_DIGITS if high / low > 2.5 else DENSEST_DIGITS
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
    return {"tickvals": ticks, "ticktext": [f"{tick:.12f}".rstrip("0").rstrip(".") for tick in ticks]}


def added_layers(session: Session) -> Figure:
    """Loss increase as layers are replaced one after the other, one line per set; dashed: the sum of single runs."""
    traces = []
    sets = added(session)
    for record, symbol, dash in zip(sets, SYMBOLS * len(sets), DASHES[1:] * len(sets), strict=False):
        result = record.result
        name = f"{'fine-tuned jointly' if result['fine_tuned'] else 'trained separately'}, {result['runs'][0]} …"
        role = "this-run" if result["fine_tuned"] else "other"
        layers = [step["layer"] for step in result["steps"]]
        losses = [step["loss_increase"] for step in result["steps"]]
        together = go.Scatter(
            x=layers,
            y=[loss["value"] for loss in losses],
            error_y=error_bars([(loss["value"], loss["low"], loss["high"]) for loss in losses]),
            text=[step["run"] for step in result["steps"]],
            name=name,
            mode="lines+markers",
            marker={"symbol": symbol, "size": 8},
            meta={"role": role},
            hovertemplate="%{text} and those before it: %{y:.4f} nats<extra></extra>",
        )
        summed = go.Scatter(
            x=layers,
            y=[step["summed_loss_increase"] for step in result["steps"]],
            name=f"{name}: each alone, summed",
            mode="lines",
            line={"dash": dash},
            meta={"role": "reference"},
            hovertemplate="each alone, summed: %{y:.4f} nats<extra></extra>",
        )
        traces += [together, summed]
    figure = go.Figure(traces)
    layers = sorted({step["layer"] for record in sets for step in record.result["steps"]})
    figure.update_xaxes(title={"text": "Layers replaced, from the first to this one"}, tickvals=layers)
    figure.update_yaxes(title={"text": "Loss increase, nats"}, rangemode="tozero")
    title = "Loss increase as layers are replaced one by one"
    return as_figure("added-layers", title, with_legend(figure), sum(len(trace.x) for trace in traces))


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
    return as_figure("load", f"Load balance of the experts of {run.name}", with_legend(figure), len(curve))


def density_evaluated(session: Session, run: RunRecord) -> Figure:
    load = newest(session, run).result["health"]["load"]
    edges, counts = load["density_edges"], load["density_counts"]
    figure = density_bars(list(pairwise(edges)), counts)
    return as_figure("density-evaluated", f"Density of the experts of {run.name}", figure, sum(counts))


def error_bars(values: Iterable[tuple[float, float, float]]) -> dict[str, Any]:
    listed = list(values)
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - value for value, _, high in listed],
        "arrayminus": [value - low for value, low, _ in listed],
        "thickness": 1,
    }


PANELS = (
    ("kl", "Change of next token, KL in nats"),
    ("loss", "Loss of the text, nats per token"),
    ("self_similarity", "Similarity of samples, cosine"),
    ("promoted_share", "Tokens it writes for, share"),
)
NAMES = {"expert": "Expert", "random_expert": "Random expert of its density", "random_direction": "Random direction"}
ROLES = {"expert": "this-run", "random_expert": "mark", "random_direction": "reference"}
KIND_DASHES = {"expert": "solid", "random_expert": "solid", "random_direction": "dot"}


def steering(session: Session, run: RunRecord) -> Figure:
    """Return four figures of amplified experts' texts over the strength: medians over experts, next to baselines."""
    records = session.scalars(select(SteeringStrengthRecord).where(SteeringStrengthRecord.run_id == run.id)).all()
    if not records:
        raise NoEvaluationsError(
            f"Steering with {run.name} has not been evaluated. Run 'mxd evaluate-steering {run.name}'."
        )
    results = median_results(records)
    figure = make_subplots(rows=2, cols=2, subplot_titles=[title for _, title in PANELS])
    start = results["none"][0.0]
    for panel, (field, _) in enumerate(PANELS):
        for kind, name in NAMES.items():
            points = [(0.0, start), *sorted(results.get(kind, {}).items())]
            trace = go.Scatter(
                x=[strength for strength, _ in points],
                y=[figures[field] for _, figures in points],
                mode="lines+markers",
                name=name,
                legendgroup=kind,
                showlegend=panel == 0,
                line={"dash": KIND_DASHES[kind]},
                meta={"role": ROLES[kind]},
            )
            figure.add_trace(trace, row=panel // 2 + 1, col=panel % 2 + 1)
    figure.update_xaxes(title={"text": "Strength, 99th percentiles"}, row=2)
    experts = len({record.expert for record in records})
    return as_figure("steering", f"Amplifying {experts} experts of {run.name}, medians", figure, experts, experts)


def probe_activations(session: Session, run: RunRecord) -> Figure:
    """Activations of the selected expert inside and outside each class, one panel per class."""
    own = probes_of(session, run)
    if not own:
        raise NoEvaluationsError(f"{run.name} has not been probed. Run 'mxd probe {run.name} --labels FILE'.")
    is_one = len({(probe.fingerprint, probe.level) for probe in own}) == 1
    panels: list[tuple[str, Mapping[str, Any]]] = []
    for probe in own:
        before = "" if is_one else f"{PurePath(probe.labels).name.split('.')[0]}: "
        after = "" if is_one or probe.level == "text" else ", tokens"
        for name, one in probe.result["kinds"]["experts"]["classes"].items():
            count = sum(one["class_counts"])
            panels.append((f"{before}{name}{after}, expert {one['expert']}, n = {count}", one))
    rows = -(-len(panels) // PANELS_PER_ROW)
    titles = [title for title, _ in panels]
    figure = make_subplots(
        rows=rows, cols=PANELS_PER_ROW, subplot_titles=titles, vertical_spacing=0.3 / rows, horizontal_spacing=0.06
    )
    for place, (title, one) in enumerate(panels):
        for trace in _distribution(title, one, place == 0):
            figure.add_trace(trace, row=place // PANELS_PER_ROW + 1, col=place % PANELS_PER_ROW + 1)
    figure.update_annotations(font={"size": 12})
    columns = {"label": "class", "x": "activation, mean over the text", "y": "share of test texts"}
    figure.update_layout(meta={"columns": columns})
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    figure.update_xaxes(title={"text": "Activation, mean over the text"}, row=rows)
    figure.update_yaxes(title={"text": "Share of test texts"}, col=1)
    return as_figure("probe-activations", "Activations inside and outside each class", with_legend(figure), len(panels))


def _distribution(title: str, probed: Mapping[str, Any], in_legend: bool) -> Iterator[go.Scatter]:
    middle = [(low + high) / 2 for low, high in pairwise(probed["edges"])]
    for field, words, role in (
        ("class_counts", "texts of the class", "this-run"),
        ("other_counts", "all other texts", "other"),
    ):
        total = max(sum(probed[field]), 1)
        yield go.Scatter(
            x=middle,
            y=[count / total for count in probed[field]],
            text=[title] * len(middle),
            name=words,
            legendgroup=field,
            showlegend=in_legend,
            mode="lines",
            line={"shape": "hvh"},
            meta={"role": role},
            hovertemplate="%{text}<br>%{y:.0%} of " + words + " around %{x:.3f}<extra></extra>",
        )


OF_A_RUN: Mapping[str, Callable[[Session, RunRecord], Figure]] = {
    "density-activation": density_activation,
    "density-histogram": density_histogram,
    "steering": steering,
    "loss-frontier": loss_frontier,
    "load": load,
    "density-evaluated": density_evaluated,
    "probe-activations": probe_activations,
}


def draw(
    session: Session, name: FigureName, run: str | None, curve: CurveName = "normalized_mse", compare: str | None = None
) -> Figure:
    """Build the figure with this name; an empty one, whose title says what to run, if nothing was measured."""
    if name == "added-layers":
        return added_layers(session)
    if run is None:
        raise UserError(f"The figure {name} needs a run. Add ?run=NAME.")
    if name == "training":
        return training(session, find_run(session, run), curve, find_run(session, compare) if compare else None)
    try:
        return OF_A_RUN[name](session, find_run(session, run))
    except NoEvaluationsError as reason:
        return Figure(name=name, title=str(reason), data=[], layout={}, drawn=0, total=0)
