"""The report on a run: chapters of sections, each with a sentence, a figure and tables.

Texts may contain Markdown links; addresses that begin with ``/`` lead to pages of the dashboard.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from mxd.backend.schemas.base import Schema
from mxd.backend.schemas.runs import FigureName


class Part(Schema):
    """Base class: an answer has every field, also those with a default."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)


class Cell(Part):
    """A number with its 95 % interval, and both as text."""

    value: float
    low: float | None
    """Null if the value has no interval."""
    high: float | None
    text: str
    """The value with its unit."""
    interval: str
    """Both ends with the unit; empty without an interval."""
    is_best: bool = False
    """True if the interval is apart from all others of the row, on the better side."""
    note: str = ""
    """Shown below the value."""


class Head(Part):
    """Heading of a column or a row."""

    key: str
    """Name in JSON."""
    title: str
    detail: str = ""
    """Description."""
    term: str | None = None
    """Entry of the glossary that explains it further."""
    href: str | None = None
    """Page of the dashboard about it."""


class Row(Head):
    """A row of a table."""

    group: str = ""
    """Heading of the rows that belong together."""
    is_baseline: bool = False
    """True for the loss without the run, or without its routing."""
    cells: tuple[Cell | None, ...]
    """One per column; null if it was not measured."""


class Table(Part):
    """Values of rows by columns."""

    key: str
    title: str
    corner: str
    """Heading of the rows."""
    columns: tuple[Head, ...]
    rows: tuple[Row, ...]
    axis: Literal["row", "column", "table"] | None
    """Values that have a common axis and are drawn as dots on it; null for numbers alone."""
    reference: float | None = None
    """A value that is marked on the axis, for example chance."""


class SectionFigure(Part):
    """A figure, of which ``/figures/{name}`` has the data."""

    name: FigureName
    note: str
    """The sample, or how to read the figure."""
    height: int
    """Height in pixels."""


class ReportWarning(Part):
    """An interpretation of the metrics."""

    level: Literal["alarm", "warning", "note"]
    """Severity."""
    text: str
    """One sentence."""


class Section(Part):
    """A part of a chapter."""

    key: str
    title: str
    verdict: str = ""
    """The result in one sentence."""
    intro: tuple[str, ...] = ()
    """Sample and conditions, above the tables."""
    warnings: tuple[ReportWarning, ...] = ()
    figure: SectionFigure | None = None
    tables: tuple[Table, ...] = ()
    """Several tables are alternatives: the same rows by different metrics."""
    notes: tuple[str, ...] = ()
    """Method and limits, below the tables."""
    commands: tuple[str, ...] = ()
    """Commands that measure it, or more of it."""


class Chapter(Part):
    """Sections on one question."""

    key: str
    title: str
    note: str
    is_folded: bool
    """True if the page shows it closed at first."""
    sections: tuple[Section, ...]


class Report(Part):
    """Everything measured of a run, and the evaluated runs of its MLP side by side."""

    run: str
    chapters: tuple[Chapter, ...]
