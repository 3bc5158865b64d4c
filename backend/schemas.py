"""What travels over HTTP: one frozen pydantic model a thing, in the vocabulary of the whole project.

The front end's types are generated from these (through ``openapi.json``), so a name changed here changes everywhere.
Units: coefficients are the gate's raw values, usage and shares are between 0 and 1, times are in seconds unless the
name says ``_ms``, losses and divergences are in nats.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from trainer.config import Method, SteeringConfig

RunStatus = Literal["training", "stopped", "finished", "failed"]
Arm = Literal["default", "steered"]
ExpertSort = Literal["expert", "usage", "mean", "largest", "entropy"]
Order = Literal["asc", "desc"]


class Schema(BaseModel):
    """Base of every wire model: immutable, and unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


# ---------------------------------------------------------------- errors and health


class ErrorBody(Schema):
    code: str
    """Stable, machine-readable: ``run-not-found``, ``prompt-too-long``, …"""
    message: str
    """One sentence that says what to do."""
    detail: dict[str, str | int | float | None] = {}


class ErrorResponse(Schema):
    """The one shape of every error."""

    error: ErrorBody


class LoadedLanguageModel(Schema):
    source: str
    """Hub name or folder."""
    device: str
    dtype: str


class Health(Schema):
    status: Literal["ok"]
    version: str
    store_bytes: int
    contexts: int
    language_models: tuple[LoadedLanguageModel, ...]
    """Those in memory now; the others load on first use."""


# ---------------------------------------------------------------- runs


class MetricPoint(Schema):
    step: int
    tokens: int
    normalised_mse: float
    dead_share: float
    """Share of experts that were active on no token of the last logging interval's usage window."""
    l0: float
    """Mean number of active experts per token."""
    largest_usage: float
    tokens_per_second: float
    seconds: float
    """Since fitting began, over all resumptions."""


class RunSummary(Schema):
    name: str
    status: RunStatus
    language_model: str
    layer: int
    method: Method
    activation: str
    num_experts: int
    k: int
    hidden_width: int
    parameters: int
    text: str
    seed: int
    tokens_wanted: int
    tokens_done: int
    started_at: datetime
    updated_at: datetime
    last_metric: MetricPoint | None
    indexed_tokens: int | None
    """Tokens in the index of contexts; null before ``mxd index``."""
    experts_active: int | None
    """Experts active on at least one indexed token."""


class RunList(Schema):
    runs: tuple[RunSummary, ...]


class RunDetail(Schema):
    run: RunSummary
    input_width: int
    output_width: int
    context: int
    """Tokens per sequence in fitting and indexing."""
    error: str | None
    """Why it failed, and the command that resumes."""
    resume_command: str
    index_text: str | None
    config: dict[str, str | int | float | bool | None]
    metrics: tuple[MetricPoint, ...]


class StatusChange(Schema):
    """How a run stands from now on."""

    status: RunStatus


# ---------------------------------------------------------------- experts and contexts


class TokenCount(Schema):
    id: int
    text: str
    count: int
    share: float
    """Of the expert's active tokens."""


class ExpertRow(Schema):
    expert: int
    label: str | None
    usage: float
    """Share of indexed tokens on which it is active."""
    active_tokens: int
    mean: float
    """Mean coefficient where active."""
    largest: float
    p99: float
    """99th percentile of the coefficient where active: the unit of ``add`` edits."""
    entropy: float
    """Entropy in bits of the tokens it is active on."""
    top_tokens: tuple[TokenCount, ...]
    histogram: tuple[int, ...]
    """Counts of its coefficient in equal bins from 0 to ``histogram_high``."""
    histogram_high: float


class ExpertPage(Schema):
    experts: tuple[ExpertRow, ...]
    next_cursor: str | None
    """Give it back as ``cursor`` for the next page; null on the last."""
    matching: int
    """Experts that fit the filters and the search."""
    total: int


class Interval(Schema):
    """A stretch of coefficients, of which a few contexts are kept at random."""

    interval: int
    """0 is the list of the largest; 1, 2, … are intervals from the highest to the lowest."""
    low: float
    high: float
    active_tokens: int
    share: float
    """Of the expert's active tokens."""
    contexts: int
    """How many are stored."""


class ExpertDetail(Schema):
    row: ExpertRow
    note: str | None
    previous: int | None
    """The neighbour in id that is active at all."""
    next: int | None
    intervals: tuple[Interval, ...]


class Context(Schema):
    """A whole stored sequence in which the expert is active, with the position it is shown for."""

    interval: int
    rank: int
    sequence: int
    position: int
    """Index into ``tokens`` of the token it is kept for (the peak, in the top list)."""
    coefficient: float
    token_ids: tuple[int, ...]
    tokens: tuple[str, ...]
    """Text of each token; empty where a character continues in the next token."""
    active: tuple[tuple[int, float], ...]
    """(position, coefficient) wherever the expert is active in the sequence."""


class ContextPage(Schema):
    contexts: tuple[Context, ...]
    next_cursor: str | None


class RandomExpert(Schema):
    expert: int
    """Active in the index."""


class SimilarExpert(Schema):
    expert: int
    label: str | None
    similarity: float
    """Cosine, -1 to 1."""
    top_tokens: tuple[TokenCount, ...]


class SimilarExperts(Schema):
    by: Literal["gate", "output"]
    """Cosine of gate directions (rows of G), or of output scalings (rows of C)."""
    experts: tuple[SimilarExpert, ...]


class SearchHit(Schema):
    expert: int
    label: str | None
    matched: Literal["label", "token", "context"]
    context: Context | None
    """The best matching stored context, where the match was in one."""


class SearchResult(Schema):
    text: str
    hits: tuple[SearchHit, ...]
    took_ms: float


class LabelRequest(Schema):
    label: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]


class NoteRequest(Schema):
    note: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=10_000)]


# ---------------------------------------------------------------- routing


class RoutingRequest(Schema):
    text: Annotated[str, Field(min_length=1, max_length=200_000)]


class RoutedExpert(Schema):
    expert: int
    coefficient: float
    share: float
    """Of the summed norms of all active experts' contributions on this token."""


class Prediction(Schema):
    id: int
    text: str
    original: float
    """Probability of being next with the original MLP."""
    replaced: float
    """Probability with the layer's MLP replaced by the run's layer."""


class RoutedToken(Schema):
    id: int
    text: str
    start: bool
    """The beginning-of-text token that we put in front; hidden by default on screen."""
    kl: float
    """KL from the original next-token distribution to that with the layer replaced, in nats."""
    experts: tuple[RoutedExpert, ...]
    """Largest coefficient first."""
    predictions: tuple[Prediction, ...]
    """The union of both arms' most probable next tokens, by original probability."""


class RoutedExpertInfo(Schema):
    label: str | None
    usage: float | None
    largest: float | None
    top_tokens: tuple[str, ...]


class RoutingResponse(Schema):
    run: str
    tokens: tuple[RoutedToken, ...]
    experts: dict[int, RoutedExpertInfo]
    """Of every expert that appears."""
    max_tokens: int
    took_ms: float


# ---------------------------------------------------------------- steering


class SteeringRequest(SteeringConfig):
    """What the trainer's steering takes, as it is."""


class Alternative(Schema):
    id: int
    text: str
    probability: float


class StartEvent(Schema):
    """First event of a stream."""

    event: Literal["start"] = "start"
    prompt_tokens: int
    max_tokens: int


class ProgressEvent(Schema):
    """The request has to wait for room."""

    event: Literal["progress"] = "progress"
    before: int
    """Requests that come first."""


class TokenEvent(Schema):
    """One new token of one arm; never text that was sent before."""

    event: Literal["token"] = "token"
    arm: Arm
    sample: int
    """Which of the continuations of this arm, from 0."""
    position: int
    """0 for the first generated token."""
    id: int
    text: str
    """The new characters; empty where a character continues in the next token."""
    probability: float
    """Under the arm that generated it."""
    delta_log_probability: float
    """log p with the edits minus log p without them, for this token after this very text, in nats."""
    kl: float
    """KL from the distribution of this arm to the other's, after this very text, in nats."""
    alternatives: tuple[Alternative, ...]
    """The five most probable tokens of this arm."""
    other_alternatives: tuple[Alternative, ...]
    """The five most probable after the same text with the edits taken away (or, in the default arm, applied)."""
    experts: tuple[RoutedExpert, ...]
    """Routing of the position that chose this token, before edits; at most eight."""


class DoneEvent(Schema):
    event: Literal["done"] = "done"
    default_reason: Literal["length", "stop", "end-of-text"]
    steered_reason: Literal["length", "stop", "end-of-text"]
    tokens: int
    seconds: float


class ErrorEvent(Schema):
    event: Literal["error"] = "error"
    error: ErrorBody


SteeringEvent = Annotated[
    StartEvent | ProgressEvent | TokenEvent | DoneEvent | ErrorEvent, Field(discriminator="event")
]


# ---------------------------------------------------------------- figures


FigureName = Literal["training", "usage-strength", "usage-histogram", "frontier", "coefficients"]


class Figure(Schema):
    """A Plotly figure. Colours are left to the front end, which knows the theme; traces say their role in ``meta``."""

    name: FigureName
    title: str
    data: list[dict[str, object]]
    layout: dict[str, object]
    drawn: int
    """Points drawn …"""
    total: int
    """… of how many."""
