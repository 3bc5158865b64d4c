"""Experts, their contexts, and what people write about them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints

from backend.schemas.base import Schema

ExpertSort = Literal[
    "expert",
    "label",
    "usage",
    "mean",
    "largest",
    "entropy",
    "added_loss",
    "kl_up",
    "output_share",
    "input_dependence",
]
Order = Literal["asc", "desc"]


class TokenCount(Schema):
    id: int
    text: str
    count: int
    share: float
    """Of the expert's active tokens."""


class AutomaticLabel(Schema):
    """A label that a program gave, with how well it tells, on text held back, where the expert is active."""

    label: str
    maker: str
    """``features``, or the name of the language model that was asked."""
    balanced_accuracy: float
    """Mean of the shares of the expert's contexts that it describes, and of other text that it does not; 0.5 is
    chance."""
    precision: float | None
    """Of the tokens that it describes, the share on which the expert is active."""
    recall: float | None
    """Of the tokens on which the expert is active, the share that it describes."""
    tested: int
    """Contexts held back to test it on."""


class ExpertRow(Schema):
    expert: int
    label: str | None
    """Given by a person."""
    automatic: AutomaticLabel | None
    """Given by a program; a person's label goes before it."""
    tags: tuple[str, ...]
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
    measured: bool
    """Whether its influence has been measured; the four figures that follow are 0 otherwise."""
    added_loss: float
    """Nats that the next token's loss gains when it alone is switched off, on its own contexts."""
    kl_up: float
    """Nats by which its 99th percentile, added, changes the next token's distribution there."""
    output_share: float
    """Of the summed norms of what all active experts add."""
    input_dependence: float
    """Share of what it writes that lies outside its mean direction."""
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


class ListRef(Schema):
    id: int
    name: str


class ExpertDetail(Schema):
    row: ExpertRow
    note: str | None
    lists: tuple[ListRef, ...]
    """Those that it is in, by name."""
    previous: int | None
    """The neighbour in id that is active at all."""
    next: int | None
    intervals: tuple[Interval, ...]
    automatic_labels: tuple[AutomaticLabel, ...]
    """All that it has, the one that is shown elsewhere first."""


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
    active: tuple[tuple[int, float, int], ...]
    """(position, coefficient, rank) wherever the expert is active; rank 0 is the largest coefficient on that token."""


class ContextPage(Schema):
    contexts: tuple[Context, ...]
    next_cursor: str | None


class RandomContexts(Schema):
    """Contexts at random over all active tokens, in the order in which they were drawn."""

    seed: int
    active_tokens: int
    short_of: int | None
    """The interval whose turn it was when none of its kept contexts was left, which ended the draw."""
    contexts: tuple[Context, ...]


class RandomExpert(Schema):
    expert: int
    """Active in the index."""


class SimilarExpert(Schema):
    expert: int
    label: str | None
    automatic: AutomaticLabel | None
    similarity: float
    """Cosine, -1 to 1."""
    top_tokens: tuple[TokenCount, ...]


SimilarBy = Literal["gate", "output", "tokens", "together"]


class SimilarExperts(Schema):
    by: SimilarBy
    """gate, output: cosine of gate directions (rows of G), or of output scalings (rows of C). tokens: cosine of how
    often each fires on which token. together: tokens on which both fire among those on which either does."""
    experts: tuple[SimilarExpert, ...]


class Companion(Schema):
    """An expert that fires where another one does, or a token before or after."""

    expert: int
    label: str | None
    automatic: AutomaticLabel | None
    top_tokens: tuple[TokenCount, ...]
    share: float
    """Of the other's tokens in the sample."""
    lift: float
    """How many times as often as on any token of the sample."""
    overlap: float
    """Tokens on which both fire among those on which either does."""
    tokens: int


class TogetherExperts(Schema):
    """What fires around an expert, counted over whole sequences drawn at random from the indexed text."""

    sampled_tokens: int
    """0 where the index keeps no sample."""
    active_tokens: int
    """Of the sample, on which the expert fires."""
    before: tuple[Companion, ...]
    together: tuple[Companion, ...]
    after: tuple[Companion, ...]


class SearchHit(Schema):
    expert: int
    label: str | None
    automatic: AutomaticLabel | None
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
