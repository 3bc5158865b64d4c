"""Contexts of an expert: stored token sequences, unpacked, with their texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import ColumnElement, LargeBinary, and_, select, tuple_, type_coerce
from sqlalchemy.orm import InstrumentedAttribute, Session

from backend.queries.cursors import ContextCursor
from backend.queries.table import PackedLists
from backend.schemas import Context
from backend.vocabulary import Vocabulary
from trainer.packing import unpack_active
from trainer.store import ContextRecord, RunRecord, SequenceRecord


class ContextQuery(BaseModel):
    """Which contexts of an expert to give."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    interval: Annotated[int | None, Field(ge=0, le=1000)] = None
    """Only those of one interval; by default all, the largest first."""
    cursor: Annotated[str | None, Field(max_length=1000)] = None
    """``next_cursor`` of the page before."""
    limit: Annotated[int, Field(ge=1, le=100)] = 20


def context_page(
    session: Session, run: RunRecord, expert: int, query: ContextQuery, vocabulary: Vocabulary
) -> dict[str, Any]:
    """Contexts of an expert in the shape of ``ContextPage``, interval by interval, by rank."""
    wanted = [ContextRecord.run_id == run.id, ContextRecord.expert == expert]
    if query.interval is not None:
        wanted.append(ContextRecord.interval == query.interval)
    place = tuple_(ContextRecord.interval, ContextRecord.rank)
    if query.cursor is not None:
        last = ContextCursor.decode(query.cursor)
        wanted.append(place > tuple_(last.interval, last.rank))
    found = stored_contexts(session, wanted, [ContextRecord.interval, ContextRecord.rank], query.limit + 1)
    shown = found[: query.limit]
    cursor = None
    if len(found) > query.limit:
        cursor = ContextCursor(interval=shown[-1].interval, rank=shown[-1].rank).encode()
    return {"contexts": [described(context, vocabulary) for context in shown], "next_cursor": cursor}


class StoredContext(NamedTuple):
    """A context as the store has it, with its sequence."""

    expert: int
    interval: int
    rank: int
    sequence: int
    position: int
    coefficient: float
    active: bytes
    """As it is packed."""
    token_ids: list[int]


PACKED = ("active", "token_ids")
NUMBERS = (getattr(ContextRecord, name) for name in StoredContext._fields if name not in PACKED)
# Most contexts that a search looks at are not shown: each is unpacked by who needs it.
PACKED_COLUMNS = (
    type_coerce(ContextRecord.active, LargeBinary).label("active"),
    type_coerce(SequenceRecord.token_ids, LargeBinary).label("token_ids"),
)
WITH_TOKENS = select(*NUMBERS, *PACKED_COLUMNS).join(
    SequenceRecord,
    and_(SequenceRecord.run_id == ContextRecord.run_id, SequenceRecord.sequence == ContextRecord.sequence),
)


def stored_contexts(
    session: Session,
    conditions: Sequence[ColumnElement[bool]],
    order: Sequence[InstrumentedAttribute[int]] = (),
    limit: int | None = None,
) -> list[StoredContext]:
    """Contexts, each with the token ids of its sequence, all unpacked at once."""
    rows = session.execute(WITH_TOKENS.where(*conditions).order_by(*order).limit(limit)).all()
    token_ids = PackedLists.of([bytes(row[-1]) for row in rows]).at(range(len(rows)))
    return [StoredContext._make((*row[:-1], ids)) for row, ids in zip(rows, token_ids, strict=True)]


def describe(context: StoredContext, vocabulary: Vocabulary) -> Context:
    """A stored context as it travels."""
    return Context.model_validate(described(context, vocabulary))


def described(context: StoredContext, vocabulary: Vocabulary) -> dict[str, Any]:
    """In the shape of ``Context``: a page has thousands of tokens, which would each be checked."""
    return {
        "interval": context.interval,
        "rank": context.rank,
        "sequence": context.sequence,
        "position": context.position,
        "coefficient": context.coefficient,
        "token_ids": tuple(context.token_ids),
        "tokens": vocabulary.texts(context.token_ids),
        "active": active_in(context.active),
    }


def active_in(packed: bytes) -> tuple[tuple[int, float, int], ...]:
    """(position, coefficient, rank) of a context, by position, to the seven digits that a float32 has."""
    return tuple([(position, float(f"{strength:.7g}"), rank) for position, strength, rank in unpack_active(packed)])
