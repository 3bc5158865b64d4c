"""Stored examples of an expert, decoded to texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import ColumnElement, tuple_
from sqlalchemy.orm import InstrumentedAttribute, Session

from mxd.backend.database.stored_examples import WITH_TOKENS, StoredExample
from mxd.backend.inference.token_text import Vocabulary
from mxd.backend.queries.cursors import ExampleCursor
from mxd.backend.queries.expert_table import PackedLists
from mxd.backend.schemas import Example
from mxd.trainer.storage.database.column_types import unpack_active
from mxd.trainer.storage.database.tables import ExampleRecord, RunRecord


class ExampleQuery(BaseModel):
    """Selection of an expert's examples."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    bin: Annotated[int | None, Field(ge=0, le=1000)] = None
    """Only examples of one bin. Default: all, top examples first."""
    cursor: Annotated[str | None, Field(max_length=1000)] = None
    """``next_cursor`` of the previous page."""
    limit: Annotated[int, Field(ge=1, le=100)] = 20


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
    return {"examples": [described(example, vocabulary) for example in shown], "next_cursor": cursor}


def stored_examples(
    session: Session,
    conditions: Sequence[ColumnElement[bool]],
    order: Sequence[InstrumentedAttribute[int]] = (),
    limit: int | None = None,
) -> list[StoredExample]:
    """Return examples with their token ids, decoded in one pass."""
    rows = session.execute(WITH_TOKENS.where(*conditions).order_by(*order).limit(limit)).all()
    token_ids = PackedLists.of([bytes(row[-1]) for row in rows]).at(range(len(rows)))
    return [StoredExample._make((*row[:-1], ids)) for row, ids in zip(rows, token_ids, strict=True)]


def describe(example: StoredExample, vocabulary: Vocabulary) -> Example:
    """Return a stored example as served."""
    return Example.model_validate(described(example, vocabulary))


def described(example: StoredExample, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return an ``Example`` as a dict: validating the thousands of tokens of a page would be slow."""
    return {
        "bin": example.bin,
        "rank": example.rank,
        "sequence": example.sequence,
        "position": example.position,
        "coefficient": example.coefficient,
        "token_ids": tuple(example.token_ids),
        "tokens": vocabulary.texts(example.token_ids),
        "active": active_in(example.active),
    }


def active_in(packed: bytes) -> tuple[tuple[int, float, int], ...]:
    """Return (position, activation, rank) by position, with the seven digits of a float32."""
    return tuple([(position, float(f"{strength:.7g}"), rank) for position, strength, rank in unpack_active(packed)])
