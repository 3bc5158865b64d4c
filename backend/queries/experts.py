"""Experts of a run: pages in any order, one in full, its neighbours.

Every order on screen has an index of its own in the store, so a page is a scan of as many entries as it has rows.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import ColumnElement, Select, select, tuple_
from sqlalchemy.orm import InstrumentedAttribute, Session

from backend import notes, tags
from backend.errors import CursorError, ExpertNotFoundError, NoIndexError
from backend.queries.automatic import shown_labels
from backend.queries.columns import among
from backend.queries.cursors import ExpertCursor
from backend.queries.runs import find_index
from backend.queries.search_index import SearchText
from backend.queries.table import DEAD, NUMBERS, WHOLE, Columns
from backend.schemas import (
    ExpertRow,
    ExpertSort,
    Order,
    SimilarExpert,
    TokenCount,
)
from backend.vocabulary import Vocabulary
from trainer.store import ExpertRecord, RunRecord

SORT_COLUMNS: dict[ExpertSort, InstrumentedAttribute[int] | InstrumentedAttribute[float]] = {
    "expert": ExpertRecord.expert,
    "usage": ExpertRecord.usage,
    "mean": ExpertRecord.mean,
    "largest": ExpertRecord.largest,
    "entropy": ExpertRecord.entropy,
    "added_loss": ExpertRecord.added_loss,
    "kl_up": ExpertRecord.kl_up,
    "output_share": ExpertRecord.output_share,
    "input_dependence": ExpertRecord.input_dependence,
}

Bound = Annotated[float | None, Field(allow_inf_nan=False)]
Condition = ColumnElement[bool]


class ExpertQuery(BaseModel):
    """Which experts of a run to give, and in which order."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    sort: ExpertSort = "largest"
    order: Order = "desc"
    search: SearchText | None = None
    """Words in the label, among the most frequent tokens, or in a context."""
    min_usage: Bound = None
    """Share of tokens; anything above 0 leaves out dead experts."""
    max_usage: Bound = None
    min_mean: Bound = None
    """Of the mean coefficient where active."""
    max_mean: Bound = None
    min_largest: Bound = None
    """Of the largest coefficient."""
    max_largest: Bound = None
    token: Annotated[str | None, Field(min_length=1, max_length=100)] = None
    """Only those that have it among their most frequent tokens, whatever its case and the spaces around it."""
    tag: Annotated[str | None, Field(max_length=60)] = None
    """Only those that have it."""
    list: Annotated[int | None, Field(ge=0, lt=2**31)] = None
    """Only those in the list of this number."""
    among: Annotated[str | None, Field(max_length=30_000, pattern=r"^\d{1,9}(,\d{1,9})*$")] = None
    """Only these, as numbers with commas: what a lasso holds."""
    cursor: Annotated[str | None, Field(max_length=1000)] = None
    """``next_cursor`` of the page before, under the same order and filters."""
    limit: Annotated[int, Field(ge=1, le=200)] = 50


def stored_page(session: Session, run: RunRecord, query: ExpertQuery, vocabulary: Vocabulary) -> dict[str, Any]:
    """A page without filters, straight from the store: for a run that is not in memory yet."""
    records = _stored(session, run, query)
    shown = records[: query.limit]
    more = len(records) > query.limit
    return {
        "experts": _described(session, run, shown, vocabulary),
        "next_cursor": cursor_at(query, _place_of(shown[-1], query), shown[-1].expert) if more else None,
        "matching": run.num_experts,
        "total": run.num_experts,
    }


def puts_dead_last(query: ExpertQuery) -> bool:
    """Whether experts that were never active come after all others: where the smallest figures come first."""
    return query.order == "asc" and query.sort not in ("expert", "label")


def _stored(session: Session, run: RunRecord, query: ExpertQuery) -> list[ExpertRecord]:
    """The experts of a page and one more, in order; each statement is a scan of an index."""
    own = ExpertRecord.run_id == run.id
    if not puts_dead_last(query):
        return list(session.scalars(page_statement(query, [own])))
    value, expert = last_of(query) or (0.0, -1)
    among_dead = value == DEAD
    active = () if among_dead else session.scalars(page_statement(query, [own, ExpertRecord.active_tokens > 0]))
    found = list(active)
    dead = select(ExpertRecord).where(own, ExpertRecord.active_tokens == 0).order_by(ExpertRecord.expert)
    if among_dead:
        dead = dead.where(ExpertRecord.expert > expert)
    return [*found, *session.scalars(dead.limit(query.limit + 1 - len(found)))]


def _place_of(record: ExpertRecord, query: ExpertQuery) -> float:
    """Where an expert stands in the order of a query."""
    return DEAD if puts_dead_last(query) and not record.active_tokens else float(getattr(record, query.sort))


def last_of(query: ExpertQuery) -> tuple[float, int] | None:
    """(value, expert) where the page before ended.

    Raises:
        CursorError: it was another list that ended there.
    """
    if query.cursor is None:
        return None
    last = ExpertCursor.decode(query.cursor)
    if (last.sort, last.order) != (query.sort, query.order):
        raise CursorError("The cursor belongs to another order; begin again at the first page.")
    return last.value, last.expert


def cursor_at(query: ExpertQuery, value: float, expert: int) -> str:
    """The cursor of the page that comes after an expert."""
    return ExpertCursor(sort=query.sort, order=query.order, value=value, expert=expert).encode()


def page_statement(query: ExpertQuery, conditions: Sequence[Condition]) -> Select[ExpertRecord]:
    """One page and one row more, which tells whether there is a next page."""
    column = SORT_COLUMNS[query.sort]
    wanted = select(ExpertRecord).where(*conditions)
    place = [ExpertRecord.expert] if query.sort == "expert" else [column, ExpertRecord.expert]
    if (last := last_of(query)) is not None:
        values = last[1:] if query.sort == "expert" else last
        here, there = tuple_(*place), tuple_(*values)
        wanted = wanted.where(here > there if query.order == "asc" else here < there)
    by = [column.asc() if query.order == "asc" else column.desc() for column in place]
    return wanted.order_by(*by).limit(query.limit + 1)


def _described(
    session: Session, run: RunRecord, records: Sequence[ExpertRecord], vocabulary: Vocabulary
) -> list[dict[str, Any]]:
    """Rows in the shape of ``ExpertRow``: a table has hundreds of small things, which would each be checked."""
    ids = [record.expert for record in records]
    labels, tagged = notes.labels_of(session, run.name, ids), tags.tags_of(session, run.name, ids)
    automatic = shown_labels(session, run, ids)
    return [
        {
            **_figures(record, vocabulary),
            "label": labels.get(record.expert),
            "automatic": automatic.get(record.expert),
            "tags": tagged.get(record.expert, ()),
        }
        for record in records
    ]


def rows_of(session: Session, run: RunRecord, experts: Collection[int], vocabulary: Vocabulary) -> dict[int, ExpertRow]:
    """Rows of those of ``experts`` that have been indexed."""
    records = list(known(session, run, experts).values())
    rows = (ExpertRow.model_validate(row) for row in _described(session, run, records, vocabulary))
    return {row.expert: row for row in rows}


FIGURES = (*WHOLE, *NUMBERS, "histogram")
"""What a row has as the store has it."""


def _figures(record: ExpertRecord, vocabulary: Vocabulary) -> dict[str, Any]:
    """What the index says of an expert; labels and tags are looked up for many at once."""
    figures = {name: getattr(record, name) for name in FIGURES}
    return {**figures, "measured": record.output_share > 0, "top_tokens": _top_tokens(record, vocabulary)}


def top_tokens(record: ExpertRecord, vocabulary: Vocabulary) -> tuple[TokenCount, ...]:
    """The tokens that an expert is active on most often."""
    return tuple(map(TokenCount.model_validate, _top_tokens(record, vocabulary)))


def _top_tokens(record: ExpertRecord, vocabulary: Vocabulary) -> list[dict[str, Any]]:
    tokens, counts = zip(*record.top_tokens, strict=True) if record.top_tokens else ((), ())
    return token_counts(tokens, counts, record.active_tokens, vocabulary)


def token_counts(
    tokens: Sequence[int], counts: Sequence[int], active_tokens: int, vocabulary: Vocabulary
) -> list[dict[str, Any]]:
    """Token ids and how often each is among the tokens that an expert is active on, in the shape of ``TokenCount``."""
    active = max(active_tokens, 1)
    return [
        {"id": token, "text": text, "count": count, "share": count / active}
        for token, text, count in zip(tokens, vocabulary.names(tokens), counts, strict=True)
    ]


def find_expert(session: Session, run: RunRecord, expert: int) -> ExpertRecord:
    """The statistics of one expert.

    Raises:
        NoIndexError: the run has not been indexed.
        ExpertNotFoundError: it has no such expert.
    """
    record = session.get(ExpertRecord, (run.id, expert))
    if record is None:
        check_expert(run, expert)
        find_index(session, run)
        raise not_indexed(run, expert)
    return record


def not_indexed(run: RunRecord, expert: int) -> ExpertNotFoundError:
    """What is said of an expert of the run that its index leaves out."""
    return ExpertNotFoundError(f"The index of {run.name} says nothing of expert {expert}; make it again.")


def check_expert(run: RunRecord, expert: int) -> None:
    """Refuse a number that is no expert of the run.

    Raises:
        ExpertNotFoundError: it is not.
    """
    if not 0 <= expert < run.num_experts:
        raise ExpertNotFoundError(f"{run.name} has experts 0 to {run.num_experts - 1}; there is no expert {expert}.")


def random_expert(run: RunRecord, columns: Columns, chance: random.Random) -> int:
    """An active expert, each as likely as the others.

    Raises:
        NoIndexError: no expert was active in the index.
    """
    if len(columns.active) == 0:
        raise NoIndexError(f"No expert of {run.name} was active in its index; index more text.")
    return int(chance.choice(columns.active))


def with_names(
    session: Session, run: RunRecord, similar: Sequence[tuple[int, float]], vocabulary: Vocabulary
) -> tuple[SimilarExpert, ...]:
    """Experts and cosines with what is known of the experts; without an index that is their label alone."""
    ids = [expert for expert, _ in similar]
    labels, automatic = notes.labels_of(session, run.name, ids), shown_labels(session, run, ids)
    records = known(session, run, ids)
    return tuple(
        SimilarExpert(
            expert=expert,
            label=labels.get(expert),
            automatic=automatic.get(expert),
            similarity=cosine,
            top_tokens=top_tokens(records[expert], vocabulary) if expert in records else (),
        )
        for expert, cosine in similar
    )


def known(session: Session, run: RunRecord, experts: Collection[int]) -> dict[int, ExpertRecord]:
    """Statistics of those of ``experts`` that have been indexed."""
    wanted = select(ExpertRecord).where(ExpertRecord.run_id == run.id, among(session, ExpertRecord.expert, experts))
    return {record.expert: record for record in session.scalars(wanted)}


def units(session: Session, run: RunRecord, experts: Collection[int]) -> dict[int, float]:
    """The 99th percentile of each expert's coefficient, the unit of edits; 1 where it is not known."""
    records = known(session, run, experts)
    return {expert: records[expert].p99 if expert in records else 1.0 for expert in experts}
