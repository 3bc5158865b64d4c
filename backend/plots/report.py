"""One HTML file with the reports on all evaluated runs and the commands that repeat them; it needs no network."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import plotly.io
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.plots.registry import draw
from mxd.backend.queries.evaluations import all_evaluations, evaluated
from mxd.backend.queries.report import run_report
from mxd.backend.schemas.report import Cell, Section, SectionFigure, Table
from mxd.trainer.storage.database.tables import (
    AblationRecord,
    EvaluationRecord,
    MeasurementRecord,
    ProbeRecord,
    RunRecord,
    SteeringStrengthRecord,
)

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1a; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; margin: .8rem 0; }
td, th { padding: .3rem 1rem .3rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid #ddd; }
td { white-space: nowrap; }
small { color: #63635c; font-weight: 400; } .wide { overflow-x: auto; } p { max-width: 90ch; }
pre { background: #f4f4f1; padding: .8rem; white-space: pre-wrap; }
.alarm { color: #a11; } .warning { color: #850; } .verdict { font-weight: 600; }
"""
LINK = re.compile(r"\[([^]]*)\]\((/[^)\s]*|https://[^)\s]*)\)")


def report(session: Session, data: Path) -> str:
    """Return the whole file. ``data``: the data folder. Raises NoEvaluationsError if nothing has been evaluated."""
    records = evaluated(session)
    runs = [session.get_one(RunRecord, run_id) for run_id in dict.fromkeys(record.run_id for record in records)]
    writer = _Writer(session)
    parts = [writer.section(all_evaluations(records), None)]
    for run in runs:
        parts += writer.chapters(run, data)
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>MxD Explorer report</title><style>{STYLE}</style><h1>MxD Explorer report</h1>"
        f"<p>{len(runs)} runs, written {made}. Losses in nats per token, 95 % bootstrap intervals over sequences.</p>"
        + "".join(parts)
        + f"<h2>Commands</h2><pre>{escape(chr(10).join(commands(session)))}</pre></html>"
    )


class _Writer:
    """Writes sections as HTML, equal ones of several runs once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._written: set[str] = set()
        self._has_plotly = False

    def chapters(self, run: RunRecord, data: Path) -> Iterator[str]:
        """Yield the chapters of a run in which something was measured."""
        yield f"<h2>{escape(run.name)}</h2>"
        for chapter in run_report(self._session, run, data).chapters:
            measured = [one for one in chapter.sections if one.tables or one.figure]
            sections = [section for one in measured if (section := self.section(one, run.name))]
            if sections:
                yield f"<h3>{escape(chapter.title)}</h3><p><small>{escape(chapter.note)}</small></p>"
                yield from sections

    def section(self, section: Section, run: str | None) -> str:
        """Return a section, or an empty text if the same was written before."""
        of_all_runs = section.figure is not None and section.figure.name == "added-layers"
        content = section.model_dump_json() + ("" if of_all_runs or section.figure is None else str(run))
        if content in self._written:
            return ""
        self._written.add(content)
        parts = [
            f"<h4>{escape(section.title)}</h4>" if section.title else "",
            f"<p class='verdict'>{_linked(section.verdict)}</p>" if section.verdict else "",
            *(f"<p>{_linked(text)}</p>" for text in section.intro),
            *(f"<p class='{one.level}'>{escape(one.text)}</p>" for one in section.warnings),
            self._figure(section.figure, run) if section.figure else "",
            *(_table(table) for table in section.tables),
            *(f"<p><small>{_linked(text)}</small></p>" for text in section.notes),
        ]
        return "".join(parts)

    def _figure(self, placed: SectionFigure, run: str | None) -> str:
        """Return a figure; the first one includes plotly.js."""
        figure = draw(self._session, placed.name, run)
        shown = go.Figure(data=escaped_traces(figure.data), layout=escaped_layout(figure.layout))
        shown.update_layout(template="plotly_white", height=placed.height + 60, margin={"t": 60, "b": 60})
        body = plotly.io.to_html(shown, full_html=False, include_plotlyjs=not self._has_plotly)
        self._has_plotly = True
        return f"<h4>{escape(figure.title)}</h4><p><small>{_linked(placed.note)}</small></p>{body}"


def _linked(text: str) -> str:
    """Return a text with its links; those to pages of the dashboard become plain words."""

    def link(found: re.Match[str]) -> str:
        words, address = found.groups()
        return words if address.startswith("/") else f"<a href='{address}'>{words}</a>"

    return LINK.sub(link, escape(text))


def _table(table: Table) -> str:
    def small(text: str) -> str:
        return f"<br><small>{escape(text)}</small>" if text else ""

    def cell(one: Cell | None) -> str:
        if one is None:
            return "–"
        value = f"<b>{escape(one.text)}</b>" if one.is_best else escape(one.text)
        return value + small(one.interval) + (f"<br><small>{_linked(one.note)}</small>" if one.note else "")

    head = "".join(f"<th>{escape(one.title)}{small(one.detail)}</th>" for one in table.columns)
    lines = [f"<tr><th>{escape(table.corner)}</th>{head}</tr>"]
    group = ""
    for row in table.rows:
        if row.group != group:
            lines.append(f"<tr><th colspan='{len(table.columns) + 1}'>{escape(row.group)}</th></tr>")
            group = row.group
        cells = "".join(f"<td>{cell(one)}</td>" for one in row.cells)
        lines.append(f"<tr><th>{escape(row.title)}{small(row.detail)}</th>{cells}</tr>")
    return f"<div class='wide'><table>{''.join(lines)}</table></div>"


# ---------------------------------------------------------------- commands

Settings = Mapping[str, Any]
PARTS = ("text", "optimizer", "regularization", "experimental")
"""Groups of settings whose flags are not nested."""
NO_FLAGS = ("gate", "language_model", "origin", "parents", "privacy", "numbers", "candidates", "language_model_dtype")
"""Settings that other arguments or other commands state."""
OF_FINE_TUNING = (
    *("dataset", "column", "split", "context_length", "on_short_text", "tokens", "learning_rate", "warmup_ratio"),
    *("decay_ratio", "batch_tokens", "next_token_weight"),
)


def commands(session: Session) -> list[str]:
    """Return the commands of all runs, evaluations, probes and steering measurements, in an executable order."""
    runs = {run.id: run for run in session.scalars(select(RunRecord).order_by(RunRecord.started_at, RunRecord.id))}
    lines = [fit(run.config) for run in runs.values()]
    # Earlier versions stored measurements of privacy fine-tuning as evaluations.
    evaluations = select(EvaluationRecord).where(~EvaluationRecord.subject.startswith("privacy: "))
    lines += [_evaluate(record) for record in session.scalars(evaluations.order_by(EvaluationRecord.id))]
    for probe in session.scalars(select(ProbeRecord).order_by(ProbeRecord.id)):
        lines.append(_line("probe", [runs[probe.run_id].name], probe.settings))
    measured = session.scalars(select(AblationRecord.run_id).distinct())
    for run_id in sorted(measured):
        flags = _settings(session, run_id, "ablate")
        experts = ",".join(map(str, flags.pop("experts", ()))) or None
        lines.append(_line("ablate", [runs[run_id].name], {**flags, "experts": experts}))
    lines += [_steering(session, run) for run in runs.values()]
    return [line for line in dict.fromkeys(lines) if line]


def _steering(session: Session, run: RunRecord) -> str:
    table = SteeringStrengthRecord
    rows = session.execute(
        select(table.expert, table.strength).where(table.run_id == run.id, table.kind == "expert")
    ).all()
    if not rows:
        return ""
    known = _settings(session, run.id, "evaluate-steering")
    strengths = known.get("strengths", sorted({strength for _, strength in rows}))
    experts = known.pop("experts", len({expert for expert, _ in rows}))
    flags = {"sampled_experts": experts} | {name: value for name, value in known.items() if name != "prompts"}
    flags |= {"strengths": ",".join(f"{strength:g}" for strength in strengths)}
    prompts = [word for prompt in known.get("prompts", ()) for word in ("--prompts", prompt)]
    return " ".join([_line("evaluate-steering", [run.name], flags), shlex.join(prompts)]).rstrip()


def _settings(session: Session, run_id: int, command: str) -> dict[str, Any]:
    """Settings of a measurement; none if it is older than the record of settings."""
    record = session.get(MeasurementRecord, (run_id, command))
    return {} if record is None else dict(record.settings)


def fit(config: Settings) -> str:
    """Return the command that made a run."""
    if config.get("privacy"):
        return f"# {config['name']} is of mxd lab protect, with {', '.join(config['parents'])}; see its run.json"
    if config.get("origin"):
        source = config["origin"]
        where = {"language_model": config["language_model"], "layer": config["layer"], "name": config["name"]}
        return _line("import", [source["source"]], {**where, **({"part": source["part"]} if source["part"] else {})})
    flags: dict[str, Any] = {}
    for name, value in config.items():
        if name in PARTS:
            flags |= {inner: setting for inner, setting in value.items() if inner not in NO_FLAGS}
        elif name not in NO_FLAGS:
            flags[name] = value
    if config.get("parents"):
        chosen = {name: flags[name] for name in OF_FINE_TUNING if name in flags}
        seed = flags["data_seed"] if flags.get("data_seed") is not None else flags["seed"]
        return _line("finetune", sorted(config["parents"]), {**chosen, "seed": seed})
    flags["num_experts"] = flags.get("num_experts") or "auto"
    if config.get("language_model_dtype") in ("float32", "bfloat16"):
        flags["dtype"] = config["language_model_dtype"]
    flags.pop("next_token_weight", None)
    return _line("lab train" if "experimental" in config else "train", [config["language_model"]], flags)


def _evaluate(record: EvaluationRecord) -> str:
    result = record.result
    flags = {name: value for name, value in record.settings.items() if name != "text"}
    flags |= {**record.settings["text"], "dataset": record.text}
    # All flags but these two have a value.
    switches = []
    if "runs" in result:
        switches.append("--layer-by-layer" if "steps" in result else "--together")
    if result.get("seen_text"):
        switches.append("--seen-text")
    names = result["runs"] if "runs" in result else [result["run"]]
    return " ".join([_line("evaluate", names, flags), *switches])


def _line(verb: str, positional: Sequence[str], flags: Settings) -> str:
    words = ["mxd", *verb.split(), *positional]
    for name, value in flags.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


# Escaping for plotly.js, which draws tags such as ``<b>`` and links in names, labels and classes as markup. The
# dashboard does the same in ``escape-markup.ts``; the API returns plain texts.

TRACE_TEXTS = ("text", "hovertext", "customdata", "name", "x", "y")
"""Fields that hold names, labels and classes. Templates are ours."""
AXIS_TEXTS = ("ticktext", "tickvals", "categoryarray")
ANNOTATION_TEXTS = ("text", "hovertext")


def escaped_traces(traces: list[dict[str, object]]) -> list[dict[str, Any]]:
    """Return the traces of a figure with every text escaped."""
    return [_fields(trace, TRACE_TEXTS) for trace in traces]


def escaped_layout(layout: Mapping[str, Any]) -> dict[str, Any]:
    """Return the layout of a figure with the texts of axes and annotations escaped."""
    result = dict(layout)
    for name in layout:
        if name[1:].startswith("axis"):
            result[name] = _fields(layout[name], AXIS_TEXTS)
    if "annotations" in result:
        result["annotations"] = [_fields(annotation, ANNOTATION_TEXTS) for annotation in result["annotations"]]
    return result


def _fields(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: _escaped(value) if name in names else value for name, value in values.items()}


def _escaped(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_escaped(item) for item in value]
    return escape(value, quote=False) if isinstance(value, str) else value
