"""One HTML file with the reports on all evaluated runs and the commands that repeat them; it needs no network."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import plotly.io
from jinja2 import Environment
from sqlalchemy.orm import Session

from mxd.backend.plots.figures import draw
from mxd.backend.queries.commands import commands
from mxd.backend.queries.evaluations import all_evaluations, evaluated
from mxd.backend.queries.report import run_report
from mxd.backend.schemas.runs import Chapter, Section, SectionFigure
from mxd.trainer.storage.database.tables import RunRecord

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
        shown = go.Figure(
            data=[_fields(trace, TRACE_TEXTS) for trace in drawn.data], layout=escaped_layout(drawn.layout)
        )
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


# Escaping for plotly.js, which draws tags such as ``<b>`` and links in names, labels and classes as markup. The
# dashboard does the same in ``escape-markup.ts``; the API returns plain texts.

TRACE_TEXTS = ("text", "hovertext", "customdata", "name", "x", "y")
"""Fields that hold names, labels and classes. Templates are ours."""
AXIS_TEXTS = ("ticktext", "tickvals", "categoryarray")
ANNOTATION_TEXTS = ("text", "hovertext")


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
