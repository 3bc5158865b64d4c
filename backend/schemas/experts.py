"""Experts: rows, details, examples, effects, matches in other runs, and what users write about them."""

from __future__ import annotations

import tomllib
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, StringConstraints, create_model

from mxd.backend.schemas.base import ErrorEvent, Schema, StepEvent
from mxd.trainer.analysis.results import TokenEffect
from mxd.trainer.storage.database.expert_columns import EXPERT_COLUMNS, SORTS, ExpertColumn, Kind, Measurement, Place

if TYPE_CHECKING:
    ExpertSort = str
    PageSort = str
else:
    ExpertSort = Literal[SORTS]
    PageSort = Literal[(*SORTS, "match", "credible", "random")]
    """A column, or one of the words that ``PageQuery`` explains."""
Order = Literal["asc", "desc"]


class TokenCount(Schema):
    """A token on which an expert is active."""

    id: int
    text: str
    count: int
    """Number of occurrences among the expert's active tokens."""
    share: float
    """Share of the expert's active tokens."""


class AutomaticLabel(Schema):
    """An automatic label with its scores on held-out text."""

    label: str
    labeller: str
    """``features``, or the name of the language model that wrote the label."""
    balanced_accuracy: float | None
    """Balanced accuracy of predicting activity from the label, on held-out examples and other text; chance is 0.5.
    Null if it was not measured, as for imported labels."""
    precision: float | None
    """Share of the tokens that match the label on which the expert is active."""
    recall: float | None
    """Share of the expert's active tokens that match the label."""
    f1: float | None
    """The harmonic mean of precision and recall on held-out tokens. Null if it was not measured, or if the
    sample has too few tokens of a rare expert."""
    test_examples: int
    """Number of held-out examples."""
    is_clear: bool
    """True if pages use the label as a name, because it has no weakness."""
    weaknesses: list[str]
    """Measured scores that are too low for a name, such as ``recall below 10 %``."""


class Labelled(Schema):
    """An expert with its labels."""

    label: str | None
    """User label."""
    automatic: AutomaticLabel | None

    @property
    def is_weak(self) -> bool:
        """True if no label says what the expert fires on."""
        return self.label is None and (self.automatic is None or not self.automatic.is_clear)


VALUES: dict[Kind, Any] = {
    "id": int,
    "count": int,
    "number": float,
    "share": float,
    "difference": float,
    "bound": float,
    "text": str,
    "label": AutomaticLabel,
    "tags": tuple[str, ...],
    "tokens": tuple[TokenCount, ...],
    "histogram": tuple[int, ...],
}
"""Type of a column's values by its kind."""

if TYPE_CHECKING:

    class ExpertRow(Schema):
        """An expert in a table; see ``EXPERT_COLUMNS``."""

        def __getattr__(self, key: str) -> Any:
            """Return the value of a column."""
else:
    ExpertRow = create_model(
        "ExpertRow",
        __base__=Schema,
        __doc__="An expert in a table.",
        **{
            column.key: (
                VALUES[column.kind] | None if column.nullable else VALUES[column.kind],
                Field(description=column.description),
            )
            for column in EXPERT_COLUMNS
        },
    )


class ColumnFilter(Schema):
    """A bound on a column."""

    name: str
    """Parameter of the page of experts, such as ``min_density``."""
    end: Literal["min", "max"]


class Column(Schema):
    """A column of the tables of experts."""

    key: str
    """Field of ``ExpertRow``."""
    title: str
    header: str
    """Short title for table headers."""
    unit: str | None
    kind: Kind
    """``share``: between 0 and 1, shown in percent. ``difference``: shown with its sign. ``bound``: an end of another
    column's range."""
    digits: int
    """Digits after the decimal point on screen."""
    description: str
    measured_by: Measurement
    """The command that measures it; ``annotation`` for labels and tags."""
    sortable: bool
    filters: tuple[ColumnFilter, ...]
    shown: tuple[Place, ...]
    """``table``: the table of experts. ``expert``: the page of one expert. ``terminal``: ``mxd experts``."""

    @classmethod
    def of(cls, column: ExpertColumn) -> Column:
        """Describe a column with the names of its filters."""
        filters = tuple(ColumnFilter(name=f"{end}_{column.key}", end=end) for end in column.filters)
        own = {name: getattr(column, name) for name in cls.model_fields if name not in ("header", "filters")}
        return cls(**own, header=column.header or column.title, filters=filters)


TERMS: dict[str, dict[str, list[str]]] = tomllib.loads(Path(__file__).with_name("glossary.toml").read_text("utf-8"))
"""Name and text of each term on screen, by heading and id, as ``glossary.toml`` explains."""

if TYPE_CHECKING:
    TermId = str
else:
    TermId = Literal[tuple(term for terms in TERMS.values() for term in terms)]


class Definition(Schema):
    """A term with its definition."""

    id: TermId
    name: str
    text: str


class GlossarySection(Schema):
    """Terms on one subject."""

    heading: str
    terms: tuple[Definition, ...]


class ColumnList(Schema):
    """All columns of an expert, in the order of tables and files, and all terms on screen."""

    columns: tuple[Column, ...]
    glossary: tuple[GlossarySection, ...]


class ExpertPage(Schema):
    """A page of experts."""

    experts: tuple[ExpertRow, ...]
    next_cursor: str | None
    """Value of ``cursor`` for the next page; null on the last page."""
    matching: int
    """Number of experts that match the filters and the search."""
    late: int
    """Number of matching experts that ``credible`` puts after the others; 0 in other orders."""
    total: int
    """Number of experts of the run."""


class ActivationBin(Schema):
    """A range of activations with a random sample of examples."""

    bin: int
    """0: top examples. 1, 2, …: activation bins from the highest to the lowest."""
    low: float
    """Lower end of the range."""
    high: float
    """Upper end of the range."""
    active_tokens: int
    """Number of active tokens in the range."""
    share: float
    """Share of the expert's active tokens."""
    examples: int
    """Number of stored examples."""


class ListRef(Schema):
    """A list that contains an expert."""

    id: int
    name: str


class ExpertDetail(Schema):
    """An expert with its annotations and bins."""

    row: ExpertRow
    note: str | None
    lists: tuple[ListRef, ...]
    """Lists that contain the expert, by name."""
    previous: int | None
    """Active expert with the next lower id."""
    next: int | None
    """Active expert with the next higher id."""
    bins: tuple[ActivationBin, ...]
    automatic_labels: tuple[AutomaticLabel, ...]
    """All automatic labels, the displayed one first."""
    label_matches: int | None
    """Number of the strongest examples that the displayed automatic label matches; null if it is not rule-based."""
    label_examples: int
    """Number of the strongest examples that were compared with it, at most 8."""
    accuracy_interval: tuple[float, float] | None
    """95 % Wilson interval of the balanced accuracy of the displayed automatic label, over its held-out examples. Null
    if it is not rule-based."""
    recurrence: ExpertRecurrence | None
    """Its matches in other runs; null if the run was not compared with others."""
    ablation: Ablation | None
    """Its effects, measured by ``mxd ablate``; null before it."""
    random_expert: int | None
    """Random active expert of similar density, as a control; null if there is none."""
    few_tokens: bool
    """True if it fires on too few tokens to say what it responds to."""
    small_below: float | None
    """Added strength below which the predictions hardly change; null if its steerability is unknown."""


class Example(Schema):
    """A stored sequence in which the expert is active."""

    bin: int
    """0: top example. 1, 2, …: activation bin of a random example."""
    rank: int
    """Order within the bin."""
    sequence: int
    """Index of the sequence in the indexed text."""
    position: int
    """Index into ``tokens`` of the token that the example shows; the peak, for a top example."""
    activation: float
    """Gate activation at ``position``."""
    token_ids: tuple[int, ...]
    tokens: tuple[str, ...]
    """Text of each token. Empty if a character continues in the next token."""
    active: tuple[tuple[int, float, int], ...]
    """(position, activation, rank) of each active token. Rank 0 is the largest activation of all experts on it."""


class ExampleSample(Schema):
    """A random sample over all active tokens."""

    seed: int
    active_tokens: int
    """Number of active tokens of the expert."""
    exhausted_bin: int | None
    """Bin that ran out of stored examples, which ended the sample; null if none did."""


class ExamplePage(Schema):
    """A page of examples, or a random sample of them."""

    examples: tuple[Example, ...]
    """By bin and rank, or in sampling order."""
    next_cursor: str | None
    """Value of ``cursor`` for the next page; null on the last page."""
    sample: ExampleSample | None
    """Null without a seed."""


class SharedTokens(Schema):
    """Tokens on or next to which both of two experts are active."""

    tokens: int
    """Number of these tokens."""
    of_tokens: int
    """Number of the other expert's active tokens, without those that have no such neighbour."""
    share: float | None
    """Share of the other expert's active tokens in the sample; null if there are fewer than 20."""
    share_interval: tuple[float, float] | None
    """95 % Wilson interval of ``share``. It treats tokens as independent."""
    lift: float | None
    """``share`` divided by the share of all sampled tokens."""


class SimilarExpert(Labelled):
    """An expert similar to another one."""

    expert: int
    similarity: float
    """Cosine similarity, -1 to 1. For ``coactivation``, the Jaccard index: tokens on which both are active, divided by
    tokens on which either is."""
    top_tokens: tuple[TokenCount, ...]
    shared: SharedTokens | None
    """Null unless similar by ``coactivation``."""


SimilarBy = Literal["gate", "output", "tokens", "coactivation"]


class SimilarExperts(Schema):
    """Experts similar to another one."""

    by: SimilarBy
    """gate: cosine of gate directions (rows of G). output: cosine of output scalings (rows of C). tokens: cosine of
    activation counts per token id. coactivation: active on the same tokens, or on those before or after them. With at
    least 20 active tokens, only experts that are active there more often than elsewhere: the interval of their share is
    above their share of all tokens."""
    experts: tuple[SimilarExpert, ...]
    """Most similar first."""
    before: tuple[SimilarExpert, ...]
    """For ``coactivation``: experts active on the previous token."""
    after: tuple[SimilarExpert, ...]
    """For ``coactivation``: experts active on the next token."""
    p95: float | None
    """95th percentile of the similarity over all other experts; null for ``coactivation``, where only experts above
    chance are listed."""
    sampled_tokens: int | None
    """Tokens in random sequences of the indexed text, in which ``tokens`` and ``coactivation`` are counted; 0 if the
    index has none, null for similarities of weights."""
    active_tokens: int | None
    """Number of sampled tokens on which the expert is active; null for similarities of weights."""
    enough_tokens: bool
    """False if these are fewer than 20, too few to rely on."""


Matched = Literal["id", "label", "token", "example", "related"]


class SearchHit(Labelled):
    """An expert that matches a search."""

    run: str
    layer: int
    expert: int
    matched: Matched
    """Field in which the text was found. ``id``: the text is the number of the expert. ``related``: it fires on words
    that the language model relates to the text."""
    is_named: bool
    """True if the text is in the user label, or in what a clear automatic label says that the expert fires on."""
    word: str | None
    """Word of the label that is related most to the text, if the text itself was found neither there nor in a token."""
    token: str | None
    """Matching top token with the largest share, if the text was found in one."""
    token_share: float | None
    """Its share of the expert's active tokens."""
    relation: float | None
    """Sum over related words of relation to the text, from 0 to 1, times share of active tokens, half in a label."""
    example: Example | None
    """Best matching example, if the text was found in one."""
    top_examples: int
    """Number of its strongest examples that were compared with the words, at most 8."""
    matching_examples: int
    """Number of those that fire on a searched or related word."""
    closeness: float
    """Mean relation of the words on which they fire to the text, from 0 to 1."""
    density: float
    """Share of the indexed tokens on which it fires."""
    top_tokens: tuple[TokenCount, ...]
    """The tokens on which it fires most often."""


SearchBy = Literal["text", "related"]


class SearchResult(Schema):
    """Experts of one or several layers that match a search, best first."""

    words: tuple[str, ...]
    """Related words that were looked up, most probable first: those on which few experts fire. Empty unless searched
    by ``related``."""
    hits: tuple[SearchHit, ...]


class Ablation(Schema):
    """Effects on an expert's own examples, weighted to represent all its active tokens."""

    examples: int
    """Number of examples measured."""
    loss_increase: float | None
    """Increase of the next-token loss when the expert is ablated, in nats; null if no example has a next token."""
    kl_ablated: float
    """KL divergence from the original next-token distribution with the expert ablated, in nats."""
    kl_amplified: float
    """KL divergence with the expert's activation raised by its 99th percentile."""
    kl_random_expert: float
    """KL divergence with a random expert of similar density raised by its own 99th percentile, on the same tokens."""
    kl_random_direction: float
    """KL divergence with a random direction added, of the same norm as in ``kl_amplified``."""
    random_expert: int
    """Id of the random expert of similar density."""
    random_loss_increase: float | None
    """Loss increase of the random expert, on its own examples."""
    output_share: float
    """Share of the summed norms of all active experts' outputs."""
    random_output_share: float | None
    """Output share of the random expert, on its own examples."""
    input_dependence: float
    """Share of the expert's output that lies outside its mean direction."""
    promoted: tuple[TokenEffect, ...]
    """Tokens that the mean output promotes through final norm and unembedding, largest change first."""
    suppressed: tuple[TokenEffect, ...]
    """Tokens that it suppresses, most negative change first."""


class AblationStoredEvent(Schema):
    """The effects of the expert are measured and stored."""

    event: Literal["done"] = "done"


AblationEvent = Annotated[StepEvent | AblationStoredEvent | ErrorEvent, Field(discriminator="event")]


class RecurrenceMatch(Schema):
    """The most similar expert of another run of the same layer, such as another seed."""

    run: str
    """Name of the other run."""
    expert: int
    """Expert of the other run."""
    is_indexed: bool
    """True if the other run is in this database, with an index."""
    is_found: bool
    """True if both cosines are above chance and neither expert has a better match."""
    mutual: bool
    """True if the other expert has no better match in this run."""
    firing_cosine: float
    """Cosine of the gate activations of both experts over a text."""
    firing_low: float
    """Lower end of its 95 % interval, over sequences."""
    firing_high: float
    """Upper end of its 95 % interval."""
    firing_chance: float
    """Chance level: 99th percentile of shuffled experts with as many active tokens."""
    writing_cosine: float
    """Cosine of the mean outputs of both experts."""
    writing_chance: float
    """Chance level: 95th percentile of random pairs."""


class ExpertRecurrence(Schema):
    """Comparison of an expert with other runs, by ``mxd recurrence``."""

    text: str
    """Name of the dataset on which the runs were compared."""
    tokens: int
    """Number of tokens that were read."""
    min_tokens: int
    """Number of active tokens below which an expert was not measured."""
    matches: tuple[RecurrenceMatch, ...]
    """One per other run, by name; empty if the expert was active on too few tokens."""


ListName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=120)]
LongText = Annotated[str, StringConstraints(strip_whitespace=True, max_length=10_000)]
ExpertNumber = Annotated[int, Field(ge=0, lt=2**31)]
SomeExperts = Annotated[tuple[ExpertNumber, ...], Field(max_length=10_000)]
LabelText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
NoteText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=10_000)]
Tag = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=60)]
Tags = Annotated[tuple[Tag, ...], Field(max_length=100)]


class ListSummary(Schema):
    """A list without its entries."""

    id: int
    name: str
    note: str | None
    experts: int
    """Number of experts in the list."""
    updated_at: datetime


class TagCount(Schema):
    """A tag and the number of experts that have it."""

    tag: str
    experts: int


class ExpertLists(Schema):
    """Lists and tags of a run."""

    lists: tuple[ListSummary, ...]
    """Most recently changed first."""
    tags: tuple[TagCount, ...]
    """In alphabetical order."""


class ListEntry(Schema):
    """An expert in a list."""

    row: ExpertRow
    note: str | None
    """Note on this entry."""


class ExpertList(Schema):
    """A list with its entries."""

    list: ListSummary
    entries: tuple[ListEntry, ...]
    """Entries in the list's order."""


class MakeListRequest(Schema):
    """A new list."""

    name: ListName
    experts: SomeExperts = ()
    """Ids of the first entries."""


class ListChange(Schema):
    """Changes to a list, made in the order of these fields. Omitted fields change nothing."""

    name: ListName | None = None
    note: LongText | None = None
    """An empty string deletes the note."""
    remove: SomeExperts = ()
    """Experts to remove; those that are not in the list are ignored."""
    add: SomeExperts = ()
    """Experts to append; those already in the list keep their position."""
    order: SomeExperts | None = None
    """All experts of the list, in the new order."""
    entry_notes: Annotated[dict[ExpertNumber, LongText], Field(max_length=10_000, default_factory=dict)]
    """Expert of the list -> note on this entry. An empty string deletes the note."""


class AnnotationChange(Schema):
    """Changes to the label, the note and the tags of an expert. Omitted fields change nothing."""

    label: LabelText | None = None
    """null deletes the label."""
    note: NoteText | None = None
    """null deletes the note."""
    add_tags: Tags = ()
    remove_tags: Tags = ()
