"""Contexts of an expert: stored token sequences, unpacked, with their texts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Row, Select, and_, select, tuple_
from sqlalchemy.orm import Session

from backend.queries.columns import among
from backend.queries.cursors import ContextCursor
from backend.schemas import Context, ContextPage
from backend.vocabulary import Vocabulary
from trainer.packing import ACTIVE, TOKEN_IDS
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
) -> ContextPage:
    """Contexts of an expert, interval by interval, by rank."""
    wanted = _with_tokens().where(ContextRecord.run_id == run.id, ContextRecord.expert == expert)
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
    return ContextPage(contexts=tuple(describe(row, vocabulary) for row in shown), next_cursor=cursor)


def largest_contexts(
    session: Session, run: RunRecord, experts: Collection[int]
) -> dict[int, list[Row[ContextRecord, bytes]]]:
    """The largest contexts of some experts with their token ids, by rank."""
    wanted = _with_tokens().where(
        ContextRecord.run_id == run.id, among(session, ContextRecord.expert, experts), ContextRecord.interval == 0
    )
    found: dict[int, list[Row[ContextRecord, bytes]]] = {}
    for row in session.execute(wanted.order_by(ContextRecord.expert, ContextRecord.rank)):
        found.setdefault(row[0].expert, []).append(row)
    return found


def _with_tokens() -> Select[ContextRecord, bytes]:
    same = and_(SequenceRecord.run_id == ContextRecord.run_id, SequenceRecord.sequence == ContextRecord.sequence)
    return select(ContextRecord, SequenceRecord.token_ids).join(SequenceRecord, same)


def describe(row: Row[ContextRecord, bytes], vocabulary: Vocabulary) -> Context:
    """A stored context as it travels."""
    record, packed = row
    token_ids = np.frombuffer(packed, TOKEN_IDS).tolist()
    return Context(
        interval=record.interval,
        rank=record.rank,
        sequence=record.sequence,
        position=record.position,
        coefficient=record.coefficient,
        token_ids=tuple(token_ids),
        tokens=vocabulary.texts(token_ids),
        active=unpack_active(record.active),
    )


def unpack_active(packed: bytes) -> tuple[tuple[int, float], ...]:
    """(position, coefficient) pairs of a context, by position, to the seven digits that a float32 has."""
    pairs: list[Any] = np.frombuffer(packed, ACTIVE).tolist()
    return tuple((position, float(f"{coefficient:.7g}")) for position, coefficient in pairs)
