"""One HTML file with the reports on all evaluated runs and the commands that repeat them; it needs no network."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import plotly.io
from jinja2 import Environment
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.plots.figures import draw
from mxd.backend.queries.evaluations import all_evaluations, evaluated
from mxd.backend.queries.report import run_report
from mxd.backend.schemas.runs import Chapter, Section, SectionFigure
from mxd.trainer.storage.database.tables import (
    AblationRecord,
    EvaluationRecord,
    MeasurementRecord,
    ProbeRecord,
    RunRecord,
    SteeringStrengthRecord,
)

LINK = re.compile(r"\[([^]]*)\]\((/[^)\s]*|https://[^)\s]*)\)")


def report(session: Session, data: Path) -> str:
    """Return the whole file. ``data``: the data folder. Raises NoEvaluationsError if nothing has been evaluated."""
    records = evaluated(session)
    runs = [session.get_one(RunRecord, run_id) for run_id in dict.fromkeys(record.run_id for record in records)]
    written: set[str] = set()
    plotly_js = [True]

    def is_new(section: Section, run: str | None) -> bool:
        """Return whether the same section was not written before, for another run."""
        of_all_runs = section.figure is not None and section.figure.name == "added-layers"
        content = section.model_dump_json() + ("" if of_all_runs or section.figure is None else str(run))
        known = content in written
        written.add(content)
        return not known

    def figure(placed: SectionFigure, run: str | None) -> tuple[str, str]:
        """Return the title and the HTML of a figure; the first one includes plotly.js."""
        drawn = draw(session, placed.name, run)
        shown = go.Figure(data=escaped_traces(drawn.data), layout=escaped_layout(drawn.layout))
        shown.update_layout(template="plotly_white", height=placed.height + 60, margin={"t": 60, "b": 60})
        include = plotly_js.pop() if plotly_js else False
        return drawn.title, plotly.io.to_html(shown, full_html=False, include_plotlyjs=include)

    def chapters(run: RunRecord) -> Iterator[tuple[Chapter, list[Section]]]:
        """Yield the chapters of a run, each with its new sections in which something was measured."""
        for chapter in run_report(session, run, data).chapters:
            yield chapter, [one for one in chapter.sections if (one.tables or one.figure) and is_new(one, run.name)]

    evaluations = all_evaluations(records)
    is_new(evaluations, None)
    templates = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    templates.filters["linked"] = _linked
    return templates.from_string(Path(__file__).with_name("report.html").read_text("utf-8")).render(
        runs=[(run.name, list(chapters(run))) for run in runs],
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        evaluations=evaluations,
        figure=figure,
        commands=commands(session),
    )


def _linked(text: str) -> str:
    """Return a text as HTML with its links; those to pages of the dashboard become plain words."""

    def link(found: re.Match[str]) -> str:
        words, address = found.groups()
        return words if address.startswith("/") else f"<a href='{address}'>{words}</a>"

    return LINK.sub(link, escape(text))


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
