"""Contexts of an expert: stored token sequences, unpacked, with their texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Row, Select, and_, select, tuple_
from sqlalchemy.orm import Session

from backend.queries.cursors import ContextCursor
from backend.schemas import Context
from backend.vocabulary import Vocabulary
from trainer.packing import ACTIVE, TOKEN_IDS
from trainer.store import ContextRecord, RunRecord, SequenceRecord

ROWS_AT_ONCE = 4
"""Contexts that are unpacked at a time while one is looked for that fits."""


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
    wanted = with_tokens().where(ContextRecord.run_id == run.id, ContextRecord.expert == expert)
    if query.interval is not None:
        wanted = wanted.where(ContextRecord.interval == query.interval)
    if query.cursor is not None:
        last = ContextCursor.decode(query.cursor)
        place = tuple_(ContextRecord.interval, ContextRecord.rank)
        wanted = wanted.where(place > tuple_(last.interval, last.rank))
    wanted = wanted.order_by(ContextRecord.interval, ContextRecord.rank).limit(query.limit + 1)
    rows = session.execute(wanted).all()
    shown = rows[: query.limit]
    cursor = None
    if len(rows) > query.limit:
        cursor = ContextCursor(interval=shown[-1][0].interval, rank=shown[-1][0].rank).encode()
    return {"contexts": [_described(row, vocabulary) for row in shown], "next_cursor": cursor}


def largest_context(
    session: Session, run: RunRecord, expert: int, fits: Callable[[Row[ContextRecord, bytes]], bool]
) -> Row[ContextRecord, bytes] | None:
    """The largest context of an expert that ``fits``, with its token ids; where none does, the largest of all."""
    of_expert = ContextRecord.run_id == run.id, ContextRecord.expert == expert, ContextRecord.interval == 0
    wanted = with_tokens().where(*of_expert).order_by(ContextRecord.rank).execution_options(yield_per=ROWS_AT_ONCE)
    largest: Row[ContextRecord, bytes] | None = None
    # One of the first nearly always fits: the others are not even unpacked.
    with session.execute(wanted) as rows:
        for row in rows:
            largest = largest or row
            if fits(row):
                return row
    return largest


def with_tokens() -> Select[ContextRecord, bytes]:
    """Contexts, each with the token ids of its sequence."""
    same = and_(SequenceRecord.run_id == ContextRecord.run_id, SequenceRecord.sequence == ContextRecord.sequence)
    return select(ContextRecord, SequenceRecord.token_ids).join(SequenceRecord, same)


def describe(row: Row[ContextRecord, bytes], vocabulary: Vocabulary) -> Context:
    """A stored context as it travels."""
    return Context.model_validate(_described(row, vocabulary))


def _described(row: Row[ContextRecord, bytes], vocabulary: Vocabulary) -> dict[str, Any]:
    """In the shape of ``Context``: a page has thousands of tokens, which would each be checked."""
    record, packed = row
    token_ids = np.frombuffer(packed, TOKEN_IDS).tolist()
    return {
        "interval": record.interval,
        "rank": record.rank,
        "sequence": record.sequence,
        "position": record.position,
        "coefficient": record.coefficient,
        "token_ids": token_ids,
        "tokens": vocabulary.texts(token_ids),
        "active": unpack_active(record.active),
    }


def unpack_active(packed: bytes) -> tuple[tuple[int, float, int], ...]:
    """(position, coefficient, rank) of a context, by position, to the seven digits that a float32 has."""
    active: list[Any] = np.frombuffer(packed, ACTIVE).tolist()
    return tuple((position, float(f"{coefficient:.7g}"), rank) for position, coefficient, rank in active)
