"""Steering: edits, texts, strength sweeps, saved sessions, search by effect; and snapshots of what a page shows."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, computed_field, model_validator

from mxd.backend.schemas.base import ErrorEvent, Schema, StepEvent
from mxd.backend.schemas.routing import CircuitRequest, RoutedExpertInfo, RoutingRequest
from mxd.trainer.analysis.circuits.graph import Circuit, CircuitCheck
from mxd.trainer.analysis.results import EditPrice, FoundExperts, SearchColumn, TokenEffect
from mxd.trainer.config.analysis import FindConfig
from mxd.trainer.config.steering import Edit, SteeringConfig, StrengthSweepConfig
from mxd.trainer.inference.results import (
    MAX_PERPLEXITY_RATIO,
    DoneEvent,
    StartEvent,
    SteeringFigures,
    StrengthSweepDoneEvent,
    StrengthSweepProgressEvent,
    TokenEvent,
)
from mxd.trainer.language_model.tokenizer import Turn


class SteeringRequest(SteeringConfig):
    """A prompt, or chat turns, and edits."""

    prompt: Annotated[str, Field(max_length=200_000)] = ""
    turns: Annotated[tuple[Turn, ...], Field(max_length=200)] = ()
    """Chat turns; used instead of the prompt if not empty."""


class StrengthSweepRequest(StrengthSweepConfig):
    """A prompt, or chat turns, and one edit at several strengths."""

    prompt: Annotated[str, Field(max_length=200_000)] = ""
    turns: Annotated[tuple[Turn, ...], Field(max_length=200)] = ()
    """Chat turns; used instead of the prompt if not empty."""


class ProgressEvent(Schema):
    """The request is queued."""

    event: Literal["progress"] = "progress"
    queue_position: int
    """Number of requests served before this one."""


SteeringEvent = Annotated[
    StartEvent | ProgressEvent | TokenEvent | DoneEvent | ErrorEvent, Field(discriminator="event")
]

StrengthSweepEvent = Annotated[
    StrengthSweepProgressEvent | StrengthSweepDoneEvent | ErrorEvent, Field(discriminator="event")
]


SessionName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]


class ShownToken(Schema):
    """A token of a generated text."""

    id: int
    text: str
    delta_log_probability: float
    """Change of its log-probability by the edits, in nats."""


Texts = Annotated[tuple[tuple[ShownToken, ...], ...], Field(min_length=1, max_length=16)]
"""Tokens of each sample."""


class SteeringTexts(Schema):
    """Texts without and with edits, as a page shows them."""

    original_turns: Annotated[tuple[Turn, ...], Field(max_length=200)] = ()
    """Turns of the original model's chat, if they differ from those of the request."""
    baseline: Texts
    steered: Texts
    kl_nats: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Mean KL divergence per token of the steered texts, in nats; null to leave it out."""
    figures: SteeringFigures | None = None
    """Effect and fluency of the steered texts; null if they were stopped or saved by an earlier version."""
    control: Texts | None = None
    """Texts with the same edits of random experts; null to leave them out."""
    control_edits: Annotated[tuple[Edit, ...], Field(max_length=64)] = ()
    """The edits of the control."""
    control_figures: SteeringFigures | None = None
    """Effect and fluency of the control; null if it was stopped or saved by an earlier version."""


class SessionResult(SteeringTexts):
    """Texts of a session, and the price of its edits."""

    price: EditPrice | None = None
    """Null if it was not measured."""


class SaveSessionRequest(Schema):
    """A session to save."""

    name: SessionName
    steering: SteeringRequest
    """The complete request, so that the session can be reproduced."""
    text: Annotated[str, StringConstraints(max_length=400)] | None = None
    """Beginning of the steered text. Default: that of the result."""
    result: SessionResult | None = None
    """Texts as they were generated, and the price of the edits. Default: generated when the session is opened."""


class SessionSummary(Schema):
    """A saved session without its request."""

    id: Annotated[str, Field(max_length=32)]
    """Short id. The session's page is ``/s/{id}``."""
    name: str
    run: str
    prompt: str
    """Beginning of the prompt, or of a chat's last message."""
    is_chat: bool
    """True if it continues a chat."""
    edits: tuple[Edit, ...]
    saved_at: datetime
    text: str | None
    """Beginning of the steered text, if it was saved."""
    tokens: tuple[ShownToken, ...]
    """First tokens of the steered text, if they were saved."""
    price: EditPrice | None
    """Price of the edits, if it was measured and their units are still the same."""


class SessionList(Schema):
    """Saved sessions of a run."""

    sessions: tuple[SessionSummary, ...]
    """Newest first."""


class SavedSession(SessionSummary):
    """A saved session."""

    steering: SteeringRequest
    result: SessionResult | None
    """The texts as they were generated; null for a session saved without them."""
    changed: tuple[str, ...]
    """Reasons why the same request may generate different texts now, one sentence each."""


class ShowcaseText(Schema):
    """A continuation at one strength."""

    strength: float
    """Strength of every edit, in units of its expert's 99th percentile. 0 is the original model."""
    tokens: tuple[ShownToken, ...]
    random: str = ""
    """Text with the same edits of random experts of similar density. Default: none."""
    perplexity_ratio: float | None = None
    """Perplexity of the text without edits, relative to the original text. Default: unknown."""
    price: EditPrice | None = None
    """Side effects. Default: unknown."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def is_fluent(self) -> bool:
        """False if the perplexity is known to be too high for a fluent text."""
        return self.perplexity_ratio is None or self.perplexity_ratio <= MAX_PERPLEXITY_RATIO


class ShowcaseFile(Schema):
    """The file ``showcase.json`` of a data folder."""

    run: str
    session: str
    """Name of the session."""
    title: str = "change a text"
    """Effect of its experts: the heading reads "Two of its experts" and then this."""
    prompt: str
    """Prompt of the texts; the session may have another one."""
    command: str
    """The command that wrote the texts."""
    controls: tuple[int, ...] = ()
    """Random experts, one for each edit. Default: none."""
    texts: Annotated[tuple[ShowcaseText, ...], Field(min_length=2)]
    """By rising strength. The first is that of the original model."""


class Showcase(Schema):
    """A saved session with its texts at several strengths, so that a slider responds immediately."""

    session: SavedSession
    title: str
    """Effect of its experts, such as "turn prose into verse"."""
    controls: tuple[int, ...]
    """Random experts with which a text of every strength is there too, one for each edit."""
    texts: tuple[ShowcaseText, ...]


class HomeShowcase(Schema):
    """Content of the first page."""

    showcase: Showcase | None
    """Null if the data folder has none, or if its texts can no longer be reproduced."""


class FindRequest(FindConfig):
    """Wanted and unwanted texts after some prompts, and the runs to search."""

    runs: Annotated[tuple[str, ...], Field(min_length=1, max_length=16)]
    """Names of runs for different layers of one language model."""
    prompts: Annotated[tuple[Annotated[str, Field(max_length=200_000)], ...], Field(max_length=16)] = ()
    """Texts before the wanted one, at most 16. Effects are averaged over them."""
    turns: Annotated[tuple[Turn, ...], Field(max_length=200)] = ()
    """Chat turns; used instead of the prompts if not empty."""


class EffectsOfEditsRequest(FindRequest):
    """Edits to measure."""

    groups: Annotated[tuple[Annotated[tuple[Edit, ...], Field(max_length=16)], ...], Field(max_length=100)]
    """Groups of edits of mode add without conditions, at most 100. Each group is measured on its own."""


class FindResponse(Schema):
    """Experts with their predicted and measured effects."""

    found: FoundExperts
    experts: dict[str, dict[int, RoutedExpertInfo]]
    """Labels and statistics of the experts, by run and expert."""
    naming: dict[str, tuple[int, ...]]
    """Experts by run whose rule-based label or promoted tokens have a wanted text."""
    columns: tuple[SearchColumn, ...]


class PriceRequest(Schema):
    """Edits whose price is measured."""

    edits: Annotated[tuple[Edit, ...], Field(min_length=1, max_length=64)]
    """Edits without conditions, 1 to 64. Edits without a run belong to the run of the path."""


class PriceDoneEvent(Schema):
    """Price of the edits."""

    event: Literal["done"] = "done"
    price: EditPrice


PriceEvent = Annotated[StepEvent | PriceDoneEvent | ErrorEvent, Field(discriminator="event")]


class ExpertSnapshot(Schema):
    """An expert with its strongest examples."""

    kind: Literal["expert"]
    expert: Annotated[int, Field(ge=0)]
    promoted: Annotated[tuple[TokenEffect, ...], Field(max_length=64)] = ()
    """Next tokens that it promotes, as the page shows them. Default: those measured by 'mxd ablate'."""
    suppressed: Annotated[tuple[TokenEffect, ...], Field(max_length=64)] = ()
    note: Annotated[str, Field(max_length=600)] = ""
    """Sample of these tokens, and their comparison. Default: none."""


class RoutingSnapshot(RoutingRequest):
    """A heat map of a text."""

    kind: Literal["routing"]
    experts: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=64)] = ()
    """Rows, in the order of the page. Default: the experts with the largest shares."""


class GridCell(Schema):
    """An expert on a token."""

    column: Annotated[int, Field(ge=0, lt=1024)]
    """Index of the token among the columns."""
    expert: Annotated[int, Field(ge=0, lt=2**31)]
    value: Annotated[float, Field(allow_inf_nan=False)]
    """Its activation, or the difference of its activations."""


class GridRow(Schema):
    """A row of a grid that the page shows."""

    run: str
    cells: Annotated[tuple[GridCell, ...], Field(min_length=1, max_length=1024)]


class GridSnapshot(RoutingRequest):
    """A text through several layers, or the difference between two texts, as the page shows it."""

    kind: Literal["layers", "difference"]
    second: Annotated[str, Field(max_length=200_000)] = ""
    """The second text of a difference."""
    columns: Annotated[tuple[str, ...], Field(min_length=1, max_length=1024)]
    """Tokens."""
    rows: Annotated[tuple[GridRow, ...], Field(min_length=1, max_length=64)]
    """Layers, the last one first, or experts."""

    @model_validator(mode="after")
    def _columns_exist(self) -> Self:
        if any(cell.column >= len(self.columns) for row in self.rows for cell in row.cells):
            raise ValueError("A cell's column is not among the columns.")
        return self


class SteeringSnapshot(SteeringTexts):
    """Texts that the page has generated."""

    kind: Literal["steering"]
    request: SteeringRequest
    """Settings of the generation."""
    findings: Annotated[tuple[Annotated[str, StringConstraints(max_length=1000)], ...], Field(max_length=16)] = ()
    """Sentences that the page shows about the texts, such as the side effects of the edits."""


class CircuitSnapshot(Schema):
    """A circuit that the page has traced."""

    kind: Literal["circuit"]
    request: CircuitRequest
    """Settings of the trace."""
    graph: Circuit
    check: CircuitCheck | None = None
    """Its check. Default: without measured effects."""

    @model_validator(mode="after")
    def _must_fit_together(self) -> Self:
        """Graphs come from a client, which may have changed one."""
        graph, (target, *experts) = self.graph, self.graph.nodes or (None,)
        named = all(node.kind == "expert" and node.run in graph.runs for node in experts)
        numbered = all((node.layer or 0) >= 0 and 0 <= (node.expert or 0) < 2**31 for node in experts)
        complete = all(node.layer is not None and node.expert is not None for node in experts)
        placed = all(0 <= node.position < len(graph.tokens) for node in graph.nodes)
        linked = all(0 <= end < len(graph.nodes) for edge in graph.edges for end in (edge.source, edge.target))
        measured = self.check is None or (
            len(self.check.measured) == len(graph.nodes) and len(self.check.edges) == len(graph.edges)
        )
        starts = target is not None and target.kind == "target" and bool(graph.candidates)
        if not (starts and named and numbered and complete and placed and linked and measured):
            raise ValueError("The parts of the graph do not fit together. Send a graph as /api/circuits returns it.")
        return self


SnapshotRequest = Annotated[
    ExpertSnapshot | RoutingSnapshot | GridSnapshot | SteeringSnapshot | CircuitSnapshot, Field(discriminator="kind")
]


class SnapshotFiles(Schema):
    """A snapshot in several formats."""

    title: str
    html: str
    """A page that needs no network and has no script."""
    markdown: str
    graph: dict[str, Any] | None
    """A circuit in the attribution graph format of Neuronpedia and circuit-tracer; null for others."""
