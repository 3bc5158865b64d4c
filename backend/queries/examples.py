"""Stored examples of an expert: pages in order of activation, and random samples. Stored texts before a given one.

An index stores a few random examples per activation bin, and bins hold very different shares of the active tokens. A
sample therefore draws a bin by its number of remaining tokens, then one of its examples, which equals drawing tokens
without replacement. It ends when the drawn bin has no example left, because another bin would bias the sample.
"""

from __future__ import annotations

import base64
import binascii
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from sqlalchemy import ColumnElement, LargeBinary, select, tuple_, type_coerce
from sqlalchemy.orm import InstrumentedAttribute, Session

from mxd.backend.database.engine import WITH_TOKENS, StoredExample
from mxd.backend.errors import CursorError
from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.schemas.base import Schema
from mxd.backend.schemas.experts import ExampleSample, Order, PageSort
from mxd.trainer.storage.database.column_types import PackedLists, unpack_active
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import ExampleRecord, RunRecord, SequenceRecord

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Id = Annotated[int, Field(ge=0, lt=2**31)]


class Cursor(BaseModel):
    """Base class of all cursors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def encode(self) -> str:
        return base64.urlsafe_b64encode(self.model_dump_json().encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, word: str) -> Self:
        try:
            return cls.model_validate_json(base64.b64decode(word + "=" * (-len(word) % 4), b"-_", validate=True))
        except (ValidationError, binascii.Error, ValueError) as error:
            raise CursorError("Invalid cursor. Start at the first page.") from error


class ExpertCursor(Cursor):
    """Last expert of a page, with the sort order."""

    sort: PageSort
    order: Order
    value: Annotated[float, Field(allow_inf_nan=False)]
    expert: Id


class ExampleCursor(Cursor):
    """Last example of a page."""

    bin: Id
    rank: Id


class ExampleQuery(Schema):
    """Selection of an expert's examples."""

    bin: Annotated[int | None, Field(ge=0, le=1000)] = None
    """Only examples of one bin. Default: all, top examples first."""
    cursor: Annotated[str | None, Field(max_length=1000)] = None
    """``next_cursor`` of the previous page."""
    seed: Annotated[int | None, Field(ge=0, lt=2**31)] = None
    """Seed of a random sample over all active tokens, whatever the bin. Default: stored examples in their order."""
    limit: Annotated[int, Field(ge=1, le=100)] = 20

    @model_validator(mode="after")
    def _sample_is_whole(self) -> Self:
        if self.seed is not None and (self.bin is not None or self.cursor is not None):
            raise ValueError("A random sample has neither a bin nor a cursor. Leave both out, or leave out the seed.")
        return self


def example_page(
    session: Session, run: RunRecord, expert: int, query: ExampleQuery, vocabulary: Vocabulary
) -> dict[str, Any]:
    """Return examples as ``ExamplePage``, sorted by bin and rank."""
    conditions = [ExampleRecord.run_id == run.id, ExampleRecord.expert == expert]
    if query.bin is not None:
        conditions.append(ExampleRecord.bin == query.bin)
    key = tuple_(ExampleRecord.bin, ExampleRecord.rank)
    if query.cursor is not None:
        last = ExampleCursor.decode(query.cursor)
        conditions.append(key > tuple_(last.bin, last.rank))
    rows = stored_examples(session, conditions, [ExampleRecord.bin, ExampleRecord.rank], query.limit + 1)
    shown = rows[: query.limit]
    cursor = None
    if len(rows) > query.limit:
        cursor = ExampleCursor(bin=shown[-1].bin, rank=shown[-1].rank).encode()
    return {"examples": [described(example, vocabulary) for example in shown], "next_cursor": cursor, "sample": None}


def stored_examples(
    session: Session,
    conditions: Sequence[ColumnElement[bool]],
    order: Sequence[InstrumentedAttribute[int]] = (),
    limit: int | None = None,
) -> list[StoredExample]:
    """Return examples with their token ids, decoded in one pass."""
    rows = session.execute(WITH_TOKENS.where(*conditions).order_by(*order).limit(limit)).all()
    token_ids = PackedLists.of([bytes(row[-1]) for row in rows]).lists()
    return [StoredExample._make((*row[:-1], ids)) for row, ids in zip(rows, token_ids, strict=True)]


def described(example: StoredExample, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return an ``Example`` as a dict: validating the thousands of tokens of a page would be slow."""
    return {
        "bin": example.bin,
        "rank": example.rank,
        "sequence": example.sequence,
        "position": example.position,
        "activation": example.activation,
        "token_ids": tuple(example.token_ids),
        "tokens": vocabulary.texts(example.token_ids),
        # Position, activation with the seven digits of a float32, and rank.
        "active": tuple([(at, float(f"{strength:.7g}"), rank) for at, strength, rank in unpack_active(example.active)]),
    }


HELD_OUT_TEXTS, HELD_OUT_TOKENS, MIN_HELD_OUT_TOKENS = 3, 24, 8
"""Most texts that are returned before a given one, and their largest and smallest lengths."""
SEARCHED_SEQUENCES = 16_384


def texts_before(
    session: Session, run: RunRecord, texts: Sequence[str], tokenizer: PreTrainedTokenizerBase
) -> tuple[str, ...]:
    """Return stored texts that end where one of ``texts`` follows for the first time, each after another token, in
    random order; none without an index. The start of a document ends them."""
    stored = type_coerce(SequenceRecord.token_ids, LargeBinary)
    query = select(stored).where(SequenceRecord.run_id == run.id).order_by(SequenceRecord.sequence)
    packed = session.scalars(query.limit(SEARCHED_SEQUENCES)).all()
    token_S, end_N = PackedLists.of([bytes(each) for each in packed]).numbers()
    chance, found = random.Random(0), dict[int, str]()
    starts = {*tokenizer.all_special_ids}
    for wanted in (tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts):
        places = np.flatnonzero(token_S[: len(token_S) - len(wanted) + 1] == wanted[0]).tolist()
        for place in chance.sample(places, len(places)):
            start, end = end_N[(at := int(np.searchsorted(end_N, place, "right"))) - 1 : at + 1].tolist()
            before = token_S[max(place - HELD_OUT_TOKENS, start) : place].tolist()
            before = before[1 + max((at for at, token in enumerate(before) if token in starts), default=-1) :]
            around = [*before, *token_S[place : min(place + len(wanted), end)].tolist()]
            first = next((at for at in range(len(around)) if around[at : at + len(wanted)] == wanted), None)
            if first == len(before) >= MIN_HELD_OUT_TOKENS:
                found.setdefault(before[-1], str(tokenizer.decode(before, clean_up_tokenization_spaces=False)))
            if len(found) >= HELD_OUT_TEXTS:
                break
    return tuple(found.values())[:HELD_OUT_TEXTS]


Place = tuple[int, int]
"""Bin and rank of a stored example."""


def draw_examples(
    tokens: Mapping[int, int], stored: Mapping[int, Sequence[int]], limit: int, chance: random.Random
) -> tuple[tuple[Place, ...], int | None]:
    """Draw examples one after another; all remaining active tokens are equally likely. ``tokens``: active tokens per
    bin. ``stored``: ranks of the stored examples per bin, a random sample of the bin. Returns the sampled examples in
    order, and the bin that ran out of examples, if any."""
    left = dict(tokens)
    available = {number: chance.sample(list(ranks), len(ranks)) for number, ranks in sorted(stored.items())}
    places: list[Place] = []
    while len(places) < limit and any(left.values()):
        number = chance.choices(list(left), weights=list(left.values()))[0]
        if not available.get(number):
            return tuple(places), number
        places.append((number, available[number].pop()))
        left[number] -= 1
    return tuple(places), None


def random_examples(
    session: Session, run: RunRecord, record: ExpertRecord, seed: int, limit: int, vocabulary: Vocabulary
) -> dict[str, Any]:
    """Return a random sample of an expert's examples as ``ExamplePage``, in the order in which they were drawn."""
    mine = (ExampleRecord.run_id == run.id, ExampleRecord.expert == record.expert)
    stored: dict[int, list[int]] = {}
    keys = select(ExampleRecord.bin, ExampleRecord.rank).where(*mine, ExampleRecord.bin > 0)
    for number, rank in session.execute(keys.order_by(ExampleRecord.bin, ExampleRecord.rank)):
        stored.setdefault(number, []).append(rank)
    tokens = {number: int(count) for number, (_, _, count) in enumerate(record.bins, start=1)}
    # Seeded with the expert too, so that experts with equal bins get different samples.
    places, exhausted = draw_examples(tokens, stored, limit, random.Random(f"{seed}/{record.expert}"))
    conditions = (*mine, tuple_(ExampleRecord.bin, ExampleRecord.rank).in_(places))
    examples = {(example.bin, example.rank): example for example in stored_examples(session, conditions)}
    return {
        "examples": [described(examples[place], vocabulary) for place in places],
        "next_cursor": None,
        "sample": ExampleSample(seed=seed, active_tokens=record.active_tokens, exhausted_bin=exhausted),
    }
