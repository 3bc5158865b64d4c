"""Runs with their training metrics, figures, reports, the server's health and sign-in.

A report has chapters of sections, each with a sentence, a figure and tables. Its texts may contain Markdown links;
addresses that begin with ``/`` lead to pages of the dashboard."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, StringConstraints

from mxd.backend.schemas.base import Schema
from mxd.backend.settings import Role
from mxd.trainer.config.layer import Method, Mixing
from mxd.trainer.storage.database.tables import MetricRecord
from mxd.trainer.utils.bootstrap import Interval

RunStatus = Literal["training", "stopped", "finished", "failed"]


class MetricPoint(Schema):
    """Metrics of one training step."""

    step: int
    tokens: int
    """Number of tokens trained on so far."""
    normalized_mse: float
    """Mean of ‖ŷ − y‖² / ‖y‖²; 1 for predicting zero."""
    dead_share: float
    """Share of experts that were active on none of the last 262,144 tokens, or of all if there were fewer."""
    l0: float
    """Mean number of active experts per token."""
    max_density: float
    """Density of the most used expert."""
    tokens_per_second: float
    seconds: float
    """Training time so far, including earlier sessions."""
    normalized_rank: float | None = None
    """Rank of the experts' matrices divided by the full rank, mean over a sample of experts; null if not measured."""
    stable_rank: float | None = None
    """Stable rank ‖W‖²_F / ‖W‖²₂, mean over the same sample."""
    min_singular_value: float | None = None
    """Smallest singular value of the sample, relative to the largest of its expert."""
    min_scaling: float | None = None
    """Smallest absolute output scaling over all entries of all experts."""

    @classmethod
    def of(cls, record: MetricRecord) -> MetricPoint:
        """Return the metrics of a record."""
        return cls.model_validate(record, from_attributes=True)


class HeldOut(Schema):
    """Main results of a run's newest evaluation at its own K."""

    text: str
    """Name of the dataset."""
    tokens: int
    """Number of tokens evaluated."""
    seen_text: bool
    """True if the run was trained on this dataset."""
    normalized_mse: float
    loss_recovered: Interval
    """Loss recovered relative to mean ablation, a share."""
    loss_increase: Interval
    """Loss increase in nats per token."""


class RunSummary(Schema):
    """A run without its metrics."""

    name: str
    status: RunStatus
    language_model: str
    """Hugging Face Hub name or local folder."""
    language_model_name: str
    """Short name of the language model."""
    layer: int
    """Index of the replaced MLP's block."""
    method: Method
    activation: str
    """Activation function of the encoder."""
    num_experts: int
    k: int
    """Number of active experts per token; a mean for methods without a fixed K."""
    min_k: int | None
    """Smallest K of Matryoshka training; null if trained with one K."""
    has_top_k: bool
    """True if a smaller K can be chosen for routing and steering."""
    mixing: Mixing | None
    """Mixing of an MxD: the paper's exact form, which can become constant, or centred. Null for other methods."""
    hidden_width: int
    parameters: int
    """Number of parameters of the layer."""
    origin: str | None
    """Format and source of an imported run; null if trained here."""
    text: str
    """Training dataset."""
    seed: int
    target_tokens: int
    """Number of tokens to train on."""
    trained_tokens: int
    """Number of tokens trained on so far."""
    started_at: datetime
    updated_at: datetime
    last_metric: MetricPoint | None
    indexed_tokens: int | None
    """Number of tokens in the index; null if not indexed."""
    active_experts: int | None
    """Number of experts active on at least one indexed token; null if not indexed."""
    index_command: str
    """Command that indexes the run on its training text."""
    train_again_command: str | None
    """Command that trains the run with another seed; null if training did not make it."""
    routing_share: float | None
    """Routing share of the newest evaluation; null if not evaluated."""
    strict_routing_share: float | None
    """Strict routing share of that evaluation; null if not measured."""
    routing_warning: str | None
    """A sentence if most of the layer's effect does not depend on its experts."""
    held_out: HeldOut | None
    """Null if not evaluated."""
    evaluated_k: tuple[int, ...]
    """Numbers of active experts per token at which the run was evaluated."""


RunMetric = Literal["normalized_mse", "loss_recovered_mean", "dead_in_index"]


class RunList(Schema):
    """All runs."""

    runs: tuple[RunSummary, ...]
    """Newest first."""
    losses: tuple[str, ...]
    """Sentences on the losses of the newest MxDs, compared in pairs with those of other runs of their MLP."""
    best: dict[str, list[RunMetric]]
    """Run -> metrics in which its interval is apart from those of all other runs of its MLP, on the better side."""
    notes: tuple[str, ...]
    """Sentences on the held-out results, asterisks and bold numbers; empty if no run was evaluated."""


class RunDetail(Schema):
    """A run with its config and metrics."""

    run: RunSummary
    error: str | None
    """Error message of a failed run."""
    resume_command: str
    """Command that resumes training."""
    config: dict[str, str | int | float | bool | None]
    """Config, with nested settings as ``optimizer.learning_rate``, and what follows from it."""
    metrics: tuple[MetricPoint, ...]
    """Metrics in order of steps."""


class StatusChange(Schema):
    """New status of a run."""

    status: RunStatus


FigureName = Literal[
    "training",
    "density-activation",
    "density-histogram",
    "steering",
    "loss-frontier",
    "added-layers",
    "load",
    "density-evaluated",
    "probe-activations",
]


CurveName = Literal["normalized_mse", "dead_share", "l0", "stable_rank", "tokens_per_second"]


class Figure(Schema):
    """A Plotly figure without colours. The client sets them by theme, from each trace's role in ``meta``."""

    name: FigureName
    title: str
    data: list[dict[str, object]]
    """Plotly traces."""
    layout: dict[str, object]
    """Plotly layout."""
    drawn: int
    """Number of points drawn."""
    total: int
    """Number of points before sampling."""


class LoadedLanguageModel(Schema):
    """A language model in memory."""

    source: str
    """Hugging Face Hub name or local folder."""
    name: str
    """Short name."""
    device: str
    dtype: str


class Health(Schema):
    """State of the server."""

    status: Literal["ok"]
    version: str
    """Version of MxD Explorer."""
    database_bytes: int
    """Size of the database on disk."""
    examples: int
    """Number of top examples of all runs."""
    language_models: tuple[LoadedLanguageModel, ...]
    """Language models in memory. Others are loaded on first use."""
    command_flags: str
    """Flags with which a command on the server's machine reads the same runs. Empty with the default data folder, and
    on a server that requires tokens."""


class SignInRequest(Schema):
    """An access token."""

    token: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]


class AccessInfo(Schema):
    """Authentication state of the client."""

    tokens_required: bool
    """True if the server requires an access token."""
    role: Role | None
    """Permissions of the client; null before sign-in."""


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
    outcome: Literal["win", "tie", "lose"] | None = None
    """Outcome of a difference for the run from which another was subtracted."""
    note: str = ""
    """Shown below the value."""
    footnote: str = ""
    """Explains the asterisk of the text."""


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
