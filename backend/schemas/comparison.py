"""Comparison of runs with each other, and of two texts."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mxd.backend.schemas.base import ErrorEvent, Schema, StepEvent
from mxd.backend.schemas.experts import Example, Labelled, TokenCount
from mxd.trainer.analysis.results import ChanceLevel, ContrastedExpert, ContrastedText, Unit

MatchedBy = Literal["gate", "tokens"]


class ComparedExpert(Labelled):
    """An expert of a matched pair."""

    expert: int
    density: float
    """Share of indexed tokens on which the expert is active."""
    top_tokens: tuple[str, ...]
    """Tokens on which it is active most often."""


class MatchedPair(Schema):
    """An expert and the most similar expert of the other run."""

    one: ComparedExpert
    other: ComparedExpert
    cosine: float
    """Cosine similarity, -1 to 1."""
    mutual: bool
    """True if each is the other's most similar expert among all active experts."""


class RunComparison(Schema):
    """Experts of one run matched with experts of another."""

    run: str
    other: str
    by: MatchedBy
    """gate: cosine of gate directions (rows of G), if both runs read the same input. tokens: cosine of the
    distributions over each expert's top tokens, if they do not."""
    active: int
    """Number of active experts of ``run``. The densest of them are matched."""
    other_active: int
    """Number of active experts of ``other``. All are candidates."""
    mutual_share: float
    """Share of pairs that are mutual."""
    median_cosine: float
    """Median cosine of the pairs."""
    chance_cosine: float
    """Median cosine after shuffling every dimension of the other run's experts independently."""
    pairs: tuple[MatchedPair, ...]
    """Pairs by density of the first expert, densest first."""


MAX_TOKENS = 32_768
MAX_EXPERTS = 20_000
WITH_EXAMPLES = 50
"""Maximum number of experts per direction with examples."""
ContrastDocument = Annotated[str, Field(min_length=1, max_length=200_000)]


class ContrastText(Schema):
    """One of the two texts: documents, or a kind of the run's indexed text."""

    documents: Annotated[tuple[ContrastDocument, ...], Field(max_length=5000)] = ()
    """Documents, the unit that is counted as independent."""
    kind: Annotated[str | None, Field(max_length=200)] = None
    """Kind of the documents of the indexed text to compare; used if there are no documents."""

    @model_validator(mode="after")
    def _has_text(self) -> Self:
        if not self.documents and self.kind is None:
            raise ValueError("Give documents or a kind.")
        return self


class ContrastRequest(Schema):
    """Two texts to compare."""

    a: ContrastText
    b: ContrastText
    tokens: Annotated[int, Field(ge=100, le=MAX_TOKENS)] = 8192
    """Maximum number of tokens per text."""
    min_tokens: Annotated[int, Field(ge=1, le=10_000)] = 20
    """Active tokens in both texts together below which an expert is not tested."""
    min_units: Annotated[int, Field(ge=2, le=10_000)] = 10
    """Documents with an active token, in both texts together, below which an expert is not tested."""
    limit: Annotated[int, Field(ge=1, le=MAX_EXPERTS)] = 50
    """Maximum number of experts per direction. The first 50 have examples."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Random seed of the documents of a kind, and of the random assignments."""


class ContrastHit(Labelled):
    """An expert that tells the texts apart."""

    contrast: ContrastedExpert
    warning: str | None
    """Warning if a density rests on a single document or sequence."""
    max_activation: float | None
    """Largest activation in the index; null without an index."""
    top_tokens: tuple[TokenCount, ...]
    examples_a: tuple[Example, ...]
    """Strongest examples in text A; empty for the experts after the first 50 of a direction."""
    examples_b: tuple[Example, ...]


class ContrastResult(Schema):
    """Experts that tell two texts apart."""

    run: str
    a: ContrastedText
    b: ContrastedText
    unit: Unit
    """Unit that is counted as independent: document, or sequence if a text has fewer than 10 documents."""
    tested: int
    """Number of experts with enough active tokens."""
    min_tokens: int
    min_units: int
    found_a: int
    """Number of experts that are more frequent in text A, with a q-value of at most 0.05."""
    found_b: int
    chance: ChanceLevel
    warnings: tuple[str, ...]
    """Reasons not to rely on the list."""
    control: str
    """Result of the random assignments, as a sentence."""
    more_in_a: tuple[ContrastHit, ...]
    """By the end of the ratio's interval that is nearer to 1, farthest from 1 first."""
    more_in_b: tuple[ContrastHit, ...]


class ContrastDoneEvent(Schema):
    """Result of a contrast."""

    event: Literal["done"] = "done"
    result: ContrastResult


ContrastEvent = Annotated[StepEvent | ContrastDoneEvent | ErrorEvent, Field(discriminator="event")]
