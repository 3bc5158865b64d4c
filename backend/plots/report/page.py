"""One HTML file with every figure and the commands that repeat the measurements; it needs no network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from html import escape

import plotly.graph_objects as go
import plotly.io
from sqlalchemy.orm import Session

from mxd.backend.errors import NoEvaluationsError
from mxd.backend.plots import evaluations as figures
from mxd.backend.plots.frontiers import error_frontier, loss_frontier, routing_frontier
from mxd.backend.plots.markup import escaped_layout, escaped_traces
from mxd.backend.plots.probes import COLUMNS, probe_coefficients, probing
from mxd.backend.plots.report import sample_sizes
from mxd.backend.plots.report.commands import commands
from mxd.backend.plots.steering import steering
from mxd.backend.queries.evaluations import evaluated, evaluations_of, seeds
from mxd.backend.queries.runs import find_run
from mxd.backend.schemas.runs import Figure
from mxd.trainer.evaluation.evaluation_metrics import HEADINGS, table_cells
from mxd.trainer.storage.database.tables import EvaluationRecord, RunRecord

OF_ALL: tuple[tuple[Callable[[Session], Figure], Callable[[Session], str]], ...] = (
    (loss_frontier, sample_sizes.of_evaluations),
    (error_frontier, sample_sizes.of_evaluations),
    (figures.faithfulness, sample_sizes.of_evaluations),
    (routing_frontier, sample_sizes.of_evaluations),
    (figures.added_layers, sample_sizes.of_layer_by_layer),
    (probing, sample_sizes.of_probes),
)
"""Figures over all runs, each with its sample size."""
OF_A_RUN: tuple[tuple[Callable[[Session, RunRecord], Figure], Callable[[Session, RunRecord], str]], ...] = (
    (figures.load, sample_sizes.of_evaluation),
    (figures.density_evaluated, sample_sizes.of_evaluation),
    (probe_coefficients, sample_sizes.of_probes_of_run),
    (steering, sample_sizes.of_steering),
)
PANEL = 210
"""Height of a panel, in pixels, in figures that have several."""
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1a; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
td, th { padding: .2rem .8rem .2rem 0; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
td:first-child, th:first-child { text-align: left; }
pre { background: #f4f4f1; padding: .8rem; white-space: pre-wrap; }
.alarm { color: #a11; } .warning { color: #850; } .wide { overflow-x: auto; }
"""


def report(session: Session) -> str:
    """Return the whole file.

    Raises:
        NoEvaluationsError: nothing has been evaluated.
    """
    records = evaluated(session)
    names = list(dict.fromkeys(record.subject for record in records if record.subject == record.result["run"]))
    parts = [
        _table(records),
        _seeds(session),
        *_drawn(session, names),
        _warnings(session, names),
        f"<h2>Commands</h2><pre>{escape(chr(10).join(commands(session)))}</pre>",
    ]
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>MxD Explorer report</title><style>{STYLE}</style><h1>MxD Explorer report</h1>"
        f"<p>{len(names)} runs, written {made}. Losses in nats per token, 95 % bootstrap intervals over sequences.</p>"
        + "".join(parts)
        + "</html>"
    )


def _table(records: Sequence[EvaluationRecord]) -> str:
    head = ("run", "text", "tokens", "sequences", "method", "K", "N", "parameters", *HEADINGS)
    return _html_table(head, [_row(record) for record in records])


def _row(record: EvaluationRecord) -> tuple[str, ...]:
    result = record.result
    return (
        record.subject,
        record.text.rsplit("/", 1)[-1],
        f"{result['tokens']:,}",
        f"{result['sequences']:,}",
        result["method"],
        str(result["k"]),
        f"{result['num_experts']:,}",
        f"{result['parameters']:,}",
        *table_cells(result),
    )


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f"<div class='wide'><table>{line(head, 'th')}{''.join(line(row, 'td') for row in rows)}</table></div>"


def _seeds(session: Session) -> str:
    groups = [group for group in seeds(session) if len(group.records) > 1]
    if not groups:
        return ""
    rows = []
    for group in groups:
        result = group.records[0].result  # all seeds have the same sizes
        row = [", ".join(group.names), f"{result['tokens']:,}", f"{result['sequences']:,}"]
        measures = (group.loss_increase, group.measure("normalized_mse"), group.measure("routing_share"))
        for one, form in zip(measures, ("+.4f", ".4f", ".3f"), strict=True):
            row += [f"{one.value:{form}}", f"{one.low:{form}} to {one.high:{form}}"]
        rows.append(row)
    head = (
        "runs",
        "tokens each",
        "sequences each",
        "loss increase",
        "95 %",
        "norm. MSE",
        "from … to",
        "routing share",
        "from … to",
    )
    return (
        "<h2>Several seeds</h2>"
        "<p>Loss increase: 95 % over seeds and sequences. Other figures: mean over the seeds, between the "
        f"lowest and the highest end of their intervals.</p>{_html_table(head, rows)}"
    )


def _drawn(session: Session, names: Sequence[str]) -> list[str]:
    """Render every figure that has data; the first one includes plotly.js."""
    drawn: list[tuple[Figure, str]] = []
    for make, size in OF_ALL:
        with suppress(NoEvaluationsError):
            drawn.append((make(session), size(session)))
    for run in [find_run(session, name) for name in names]:
        for make_one, size_one in OF_A_RUN:
            with suppress(NoEvaluationsError):
                drawn.append((make_one(session, run), size_one(session, run)))
    libraries: list[bool] = [True] + [False] * len(drawn)
    return [_html(figure, size, library) for (figure, size), library in zip(drawn, libraries, strict=False)]


def _html(figure: Figure, sample_size: str, library: bool) -> str:
    """Render a figure; the first one includes plotly.js."""
    shown = go.Figure(data=escaped_traces(figure.data), layout=escaped_layout(figure.layout))
    rows = len({trace.yaxis for trace in shown.data})
    height = 440 if rows == 1 else max(440, PANEL * -(-rows // COLUMNS))
    legend = {"orientation": "h", "y": -0.25} if rows == 1 else {"orientation": "h", "y": 1.05, "yanchor": "bottom"}
    shown.update_layout(template="plotly_white", height=height, margin={"t": 20 if rows == 1 else 70}, legend=legend)
    body = plotly.io.to_html(shown, full_html=False, include_plotlyjs=library)
    return f"<h2>{escape(figure.title)}</h2>{_sample(sample_size)}{body}"


def _sample(size: str) -> str:
    return f"<p>Sample: {escape(size)}.</p>"


def _warnings(session: Session, names: Sequence[str]) -> str:
    parts = ["<h2>Warnings per run</h2>"]
    for name in names:
        run = find_run(session, name)
        newest = evaluations_of(session, run)[0]
        sample = _sample(sample_sizes.of_evaluation(session, run))
        said = "".join(f"<li class='{one.level}'>{escape(one.text)}</li>" for one in newest.warnings)
        facts = [
            (
                fact.title,
                "" if fact.value is None else f"{fact.value:.4g}",
                "" if fact.low is None or fact.high is None else f"{fact.low:.4g} to {fact.high:.4g}",
                fact.description,
            )
            for fact in newest.metrics
        ]
        table = _html_table(("figure", "value", "95 %", "what it is"), facts)
        details = f"<details><summary>All figures</summary>{table}</details>"
        parts.append(f"<h3>{escape(name)}</h3>{sample}<ul>{said}</ul>{details}")
    return "".join(parts)
