"""One HTML file with every figure of what was measured and the commands that repeat it; it needs no network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from html import escape
from typing import Any

import plotly.graph_objects as go
import plotly.io
from sqlalchemy import select
from sqlalchemy.orm import Session

from backend import figures_of_evaluations as figures
from backend.errors import NoEvaluationsError
from backend.queries.evaluations import evaluated, evaluations_of, probes
from backend.queries.runs import find_run
from backend.schemas import Fact, Figure
from trainer.evaluation.write import over_seeds
from trainer.store import EvaluationRecord, RunRecord

OF_ALL: tuple[Callable[[Session], Figure], ...] = (
    figures.loss_frontier,
    figures.error_frontier,
    figures.faithfulness,
    figures.routing_frontier,
    figures.added_layers,
    figures.probing,
)
OF_A_RUN: tuple[Callable[[Session, RunRecord], Figure], ...] = (figures.load, figures.probe_coefficients)
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1a; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
td, th { padding: .2rem .8rem .2rem 0; text-align: right; border-bottom: 1px solid #ddd; }
td:first-child, th:first-child { text-align: left; }
pre { background: #f4f4f1; padding: .8rem; white-space: pre-wrap; }
.alarm { color: #a11; } .warning { color: #850; } .wide { overflow-x: auto; }
"""


def report(session: Session) -> str:
    """The whole file.

    Raises:
        NoEvaluationsError: nothing has been evaluated.
    """
    records = evaluated(session)
    names = list(dict.fromkeys(record.subject for record in records if record.subject == record.result["run"]))
    parts = [
        _table(records),
        _seeds(session),
        *_drawn(session, names),
        _verdicts(session, names),
        _commands(session, records),
    ]
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>What the runs do</title><style>{STYLE}</style><h1>What the runs do</h1>"
        f"<p>{len(names)} runs, written {made}. Losses in nats a token; 95 % bootstrap intervals over sequences.</p>"
        + "".join(parts)
        + "</html>"
    )


def _table(records: Sequence[EvaluationRecord]) -> str:
    head = (
        "run",
        "text",
        "method",
        "K",
        "N",
        "parameters",
        "added loss",
        "95 %",
        "recovered",
        "KL",
        "norm. MSE",
        "routing",
        "dead",
    )
    rows = [_row(record) for record in records]
    return _html_table(head, rows)


def _row(record: EvaluationRecord) -> tuple[str, ...]:
    result = record.result
    delta = result["delta_ce"]
    return (
        record.subject,
        record.text.rsplit("/", 1)[-1],
        result["method"],
        str(result["k"]),
        f"{result['num_experts']:,}",
        f"{result['parameters']:,}",
        f"{delta['value']:+.4f}",
        f"{delta['low']:+.4f} to {delta['high']:+.4f}",
        _number(result["loss_recovered_mean"]["value"]),
        f"{result['kl']:.4f}",
        f"{result['normalised_mse']:.4f}",
        _number(result["routing_share"]),
        _number(result["dead_share"]),
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f"<div class='wide'><table>{line(head, 'th')}{''.join(line(row, 'td') for row in rows)}</table></div>"


def _seeds(session: Session) -> str:
    wanted = select(EvaluationRecord, RunRecord.config).join(RunRecord, RunRecord.id == EvaluationRecord.run_id)
    groups = over_seeds([(record, config) for record, config in session.execute(wanted)])
    if not groups:
        return ""
    rows = [
        (", ".join(names), f"{found.value:+.4f}", f"{found.low:+.4f} to {found.high:+.4f}") for names, found in groups
    ]
    return "<h2>Over seeds</h2>" + _html_table(("runs", "added loss", "95 % over seeds and sequences"), rows)


def _drawn(session: Session, names: Sequence[str]) -> list[str]:
    """Every figure that there are data for; plotly.js itself goes with the first."""
    drawn: list[Figure] = []
    for make in OF_ALL:
        with suppress(NoEvaluationsError):
            drawn.append(make(session))
    for name in names:
        for make_one in OF_A_RUN:
            with suppress(NoEvaluationsError):
                drawn.append(make_one(session, find_run(session, name)))
    libraries: list[bool] = [True] + [False] * len(drawn)
    return [_html(figure, library) for figure, library in zip(drawn, libraries, strict=False)]


def _html(figure: Figure, library: bool) -> str:
    """A figure; plotly.js goes into the file with the first."""
    shown = go.Figure(data=figure.data, layout=figure.layout)
    shown.update_layout(template="plotly_white", height=440, margin={"t": 20}, legend={"orientation": "h", "y": -0.25})
    body = plotly.io.to_html(shown, full_html=False, include_plotlyjs=library)
    return f"<h2>{escape(figure.title)}</h2>{body}"


def _verdicts(session: Session, names: Sequence[str]) -> str:
    parts = ["<h2>What to know of each run</h2>"]
    for name in names:
        newest = evaluations_of(session, find_run(session, name)).evaluations[0]
        said = "".join(f"<li class='{one.level}'>{escape(one.text)}</li>" for one in newest.verdicts)
        facts = [_fact(fact) for fact in (*newest.faithfulness, *newest.health)]
        table = _html_table(("figure", "value", "95 %", "what it is"), facts)
        parts.append(f"<h3>{escape(name)}</h3><ul>{said}</ul><details><summary>All figures</summary>{table}</details>")
    return "".join(parts)


def _fact(fact: Fact) -> tuple[str, ...]:
    between = "" if fact.low is None or fact.high is None else f"{fact.low:.4g} to {fact.high:.4g}"
    return (fact.name, "" if fact.value is None else f"{fact.value:.4g}", between, fact.meaning)


def _commands(session: Session, records: Sequence[EvaluationRecord]) -> str:
    lines = []
    for record in records:
        config = session.get_one(RunRecord, record.run_id).config
        settings = record.settings
        lines.append(_train_command(config))
        flags = {name: settings[name] for name in ("tokens", "seed", "resamples", "prompts")}
        flags |= {"text": record.text, "context": settings["text"]["context"]}
        if settings.get("k") is not None:
            flags["k"] = settings["k"]
        lines.append(f"mxd evaluate {record.result['run']} " + _flags(flags))
    lines += [_probe_command(probe.settings, run.name) for probe, run in _all_probes(session)]
    return f"<h2>To repeat it</h2><pre>{escape(chr(10).join(dict.fromkeys(lines)))}</pre>"


def _all_probes(session: Session) -> list[Any]:
    try:
        return list(probes(session))
    except NoEvaluationsError:
        return []


def _train_command(config: dict[str, Any]) -> str:
    text, optimizer = config["text"], config["optimizer"]
    experts = config["num_experts"] or "auto"
    flags = {
        "layer": config["layer"],
        "text": text["text"],
        "tokens": config["tokens"],
        "method": config["method"],
        "k": config["k"],
        "num-experts": experts,
        "start": config["start"],
        "seed": config["seed"],
        "context": text["context"],
        "learning-rate": optimizer["learning_rate"],
        "warmup": optimizer["warmup"],
        "decay": optimizer["decay"],
        "batch": optimizer["batch"],
        "name": config["name"],
    }
    for name in ("text_seed", "smallest_k", "span"):
        if config.get(name) is not None:
            flags[name.replace("_", "-")] = config[name]
    if config.get("language_model_dtype") in ("float32", "bfloat16"):
        flags["dtype"] = config["language_model_dtype"]
    return f"mxd train {config['language_model']} " + _flags(flags)


def _probe_command(settings: dict[str, Any], run: str) -> str:
    return f"mxd probe {run} " + _flags(settings)


def _flags(values: Mapping[str, Any]) -> str:
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in values.items())
