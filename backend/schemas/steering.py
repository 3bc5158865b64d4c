"""Steering: edits, generated texts, strength sweeps, saved sessions, and search by effect."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from mxd.backend.schemas.base import ErrorEvent, Schema
from mxd.backend.schemas.routing import RoutedExpertInfo
from mxd.trainer.analysis.results import EditPrice, FoundExperts
from mxd.trainer.config import Edit, SteeringConfig, StrengthSweepConfig
from mxd.trainer.config.analysis import FindConfig
from mxd.trainer.inference.results import (
    DoneEvent,
    StartEvent,
    StrengthSweepDoneEvent,
    StrengthSweepProgressEvent,
    TokenEvent,
)
from mxd.trainer.language_model.chat_template import Turn


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


class SaveSessionRequest(Schema):
    """A session to save."""

    name: SessionName
    steering: SteeringRequest
    """The complete request, so that the session can be reproduced."""
    text: Annotated[str, StringConstraints(max_length=400)] | None = None
    """Beginning of the steered text."""


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


class SessionList(Schema):
    """Saved sessions of a run."""

    sessions: tuple[SessionSummary, ...]
    """Newest first."""


class SavedSession(SessionSummary):
    """A saved session."""

    steering: SteeringRequest
    changed: tuple[str, ...]
    """Reasons why the same request may generate different texts now, one sentence each."""


class ShowcaseToken(Schema):
    """A token of a stored text."""

    id: int
    text: str
    delta_log_probability: float
    """Change of its log-probability by the edits, in nats."""


class ShowcaseText(Schema):
    """A continuation at one strength."""

    strength: float
    """Strength of every edit, in units of its expert's 99th percentile. 0 is the original model."""
    tokens: tuple[ShowcaseToken, ...]


class ShowcaseFile(Schema):
    """The file ``showcase.json`` of a data folder."""

    run: str
    session: str
    """Name of the session."""
    title: str = "change a text"
    """Effect of its experts: the heading reads "Two of 4,096 experts" and then this."""
    command: str
    """The command that wrote the texts."""
    texts: Annotated[tuple[ShowcaseText, ...], Field(min_length=2)]
    """By rising strength. The first is that of the original model."""


class Showcase(Schema):
    """A saved session with its texts at several strengths, so that a slider responds immediately."""

    session: SavedSession
    title: str
    """Effect of its experts, such as "turn prose into verse"."""
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


class PriceRequest(Schema):
    """Edits whose price is measured."""

    edits: Annotated[tuple[Edit, ...], Field(min_length=1, max_length=64)]
    """Edits without conditions, 1 to 64. Edits without a run belong to the run of the path."""


class PriceProgressEvent(Schema):
    """Progress of the measurement of a price."""

    event: Literal["progress"] = "progress"
    done: int
    """Number of texts and items that were read."""
    total: int


class PriceDoneEvent(Schema):
    """Price of the edits."""

    event: Literal["done"] = "done"
    price: EditPrice


PriceEvent = Annotated[PriceProgressEvent | PriceDoneEvent | ErrorEvent, Field(discriminator="event")]
