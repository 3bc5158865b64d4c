"""Experts of a run: pages in any order, and single experts.

Every sort order has its own index in the database, so a page is a range scan.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import ColumnElement, Select, select, tuple_
from sqlalchemy.orm import InstrumentedAttribute, Session

from mxd.backend.database import annotations as notes
from mxd.backend.database import annotations as tags
from mxd.backend.database.sql import among
from mxd.backend.errors import CursorError, ExpertNotFoundError, NoIndexError
from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.queries.automatic_labels import shown_labels
from mxd.backend.queries.cursors import ExpertCursor
from mxd.backend.queries.expert_table import (
    DEAD,
    MEASURED,
    NOT_COMPARED,
    NOT_STORED,
    NUMBERS,
    UNMEASURED,
    WHOLE,
    Columns,
)
from mxd.backend.queries.recurrence import FoundAgain, found_again
from mxd.backend.queries.runs import find_index
from mxd.backend.queries.search_index import SearchText
from mxd.backend.schemas.experts import ExpertRow, Order, PageSort, SimilarExpert, TokenCount
from mxd.trainer.storage.database.tables import ExpertRecord, RunRecord
from mxd.trainer.utils.text import unknown_expert

SORT_COLUMNS: dict[str, InstrumentedAttribute[int] | InstrumentedAttribute[float]] = {
    "expert": ExpertRecord.expert,
    "density": ExpertRecord.density,
    "mean_activation": ExpertRecord.mean_activation,
    "max_activation": ExpertRecord.max_activation,
    "entropy": ExpertRecord.entropy,
    "loss_increase": ExpertRecord.loss_increase,
    "kl_amplified": ExpertRecord.kl_amplified,
    "output_share": ExpertRecord.output_share,
    "input_dependence": ExpertRecord.input_dependence,
}

Bound = Annotated[float | None, Field(allow_inf_nan=False)]
Condition = ColumnElement[bool]


class ExpertQuery(BaseModel):
    """Filters and order of a page of experts."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    sort: PageSort = "max_activation"
    """Column, or ``match``: with ascending order, the best matches of ``search`` first, the others by label."""
    order: Order = "desc"
    search: SearchText | None = None
    """Text to search in labels, top tokens and examples."""
    min_density: Bound = None
    """Lower bound on density. Any value above 0 excludes dead experts."""
    max_density: Bound = None
    min_mean_activation: Bound = None
    """Lower bound on the mean activation."""
    max_mean_activation: Bound = None
    min_max_activation: Bound = None
    """Lower bound on the largest activation."""
    max_max_activation: Bound = None
    min_recurrence: Annotated[int | None, Field(ge=0, lt=2**31)] = None
    """Only experts that ``mxd recurrence`` found again in at least this many other runs."""
    token: Annotated[str | None, Field(min_length=1, max_length=100)] = None
    """Only experts with this top token, ignoring case and surrounding spaces."""
    tag: Annotated[str | None, Field(max_length=60)] = None
    """Only experts with this tag."""
    list: Annotated[int | None, Field(ge=0, lt=2**31)] = None
    """Only experts in the list with this id."""
    among: Annotated[str | None, Field(max_length=30_000, pattern=r"^\d{1,9}(,\d{1,9})*$")] = None
    """Only these comma-separated expert ids."""
    cursor: Annotated[str | None, Field(max_length=1000)] = None
    """``next_cursor`` of the previous page, with the same order and filters."""
    limit: Annotated[int, Field(ge=1, le=200)] = 50


def database_page(session: Session, run: RunRecord, query: ExpertQuery, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return a page without filters from the database, for a run that is not cached yet."""
    records = _stored(session, run, query)
    shown = records[: query.limit]
    more = len(records) > query.limit
    return {
        "experts": _described(session, run, shown, vocabulary),
        "next_cursor": cursor_at(query, _place_of(shown[-1], query), shown[-1].expert) if more else None,
        "matching": run.num_experts,
        "total": run.num_experts,
    }


def _column_of_last(query: ExpertQuery) -> str | None:
    """Return the column that is 0 for experts without a value, which come last; None if there are none."""
    if query.sort in MEASURED:
        return "output_share"
    return "active_tokens" if query.order == "asc" and query.sort not in ("expert", *NOT_STORED) else None


def _stored(session: Session, run: RunRecord, query: ExpertQuery) -> list[ExpertRecord]:
    """Return the experts of a page and one more, in order. Each statement is an index scan."""
    own, name = ExpertRecord.run_id == run.id, _column_of_last(query)
    if name is None:
        return list(session.scalars(page_statement(query, [own])))
    column = getattr(ExpertRecord, name)
    value, expert = last_of(query) or (0.0, -1)
    among_last = abs(value) == DEAD
    records = [] if among_last else list(session.scalars(page_statement(query, [own, column > 0])))
    ascending, number = query.order == "asc", ExpertRecord.expert
    rest = select(ExpertRecord).where(own, column == 0).order_by(number.asc() if ascending else number.desc())
    if among_last:
        rest = rest.where(number > expert if ascending else number < expert)
    return [*records, *session.scalars(rest.limit(query.limit + 1 - len(records)))]


def _place_of(record: ExpertRecord, query: ExpertQuery) -> float:
    """Return the sort key of an expert."""
    name = _column_of_last(query)
    if name is not None and getattr(record, name) == 0:
        return DEAD if query.order == "asc" else -DEAD
    return float(getattr(record, query.sort))


def last_of(query: ExpertQuery) -> tuple[float, int] | None:
    """Return (value, expert) at the end of the previous page.

    Raises:
        CursorError: the cursor belongs to another order.
    """
    if query.cursor is None:
        return None
    last = ExpertCursor.decode(query.cursor)
    if (last.sort, last.order) != (query.sort, query.order):
        raise CursorError("The cursor belongs to another sort order. Start at the first page.")
    return last.value, last.expert


def cursor_at(query: ExpertQuery, value: float, expert: int) -> str:
    """Return the cursor of the page after an expert."""
    return ExpertCursor(sort=query.sort, order=query.order, value=value, expert=expert).encode()


def page_statement(query: ExpertQuery, conditions: Sequence[Condition]) -> Select[ExpertRecord]:
    """Return a statement for one page and one more row, which shows whether there is a next page."""
    column = SORT_COLUMNS[query.sort]
    statement = select(ExpertRecord).where(*conditions)
    place = [ExpertRecord.expert] if query.sort == "expert" else [column, ExpertRecord.expert]
    if (last := last_of(query)) is not None:
        values = last[1:] if query.sort == "expert" else last
        here, there = tuple_(*place), tuple_(*values)
        statement = statement.where(here > there if query.order == "asc" else here < there)
    by = [column.asc() if query.order == "asc" else column.desc() for column in place]
    return statement.order_by(*by).limit(query.limit + 1)


def _described(
    session: Session, run: RunRecord, records: Sequence[ExpertRecord], vocabulary: Vocabulary
) -> list[dict[str, Any]]:
    """Return ``ExpertRow`` dicts: validating every value of a table would be slow."""
    ids = [record.expert for record in records]
    labels, tagged = notes.labels_of(session, run.name, ids), tags.tags_of(session, run.name, ids)
    automatic, recurrences = shown_labels(session, run, ids), found_again(session, run.id, ids)
    return [
        {
            **_figures(record, vocabulary),
            **_compared(recurrences.get(record.expert)),
            "label": labels.get(record.expert),
            "automatic": automatic.get(record.expert),
            "tags": tagged.get(record.expert, ()),
        }
        for record in records
    ]


def _compared(stored: FoundAgain | None) -> Mapping[str, int | None]:
    return NOT_COMPARED if stored is None else {name: getattr(stored, name) for name in NOT_COMPARED}


def rows_of(session: Session, run: RunRecord, experts: Collection[int], vocabulary: Vocabulary) -> dict[int, ExpertRow]:
    """Return the rows of those of ``experts`` that are indexed."""
    records = list(known(session, run, experts).values())
    rows = (ExpertRow.model_validate(row) for row in _described(session, run, records, vocabulary))
    return {row.expert: row for row in rows}


FIGURES = (*WHOLE, *NUMBERS, "histogram")
"""Columns of a row that are copied from the database."""


def _figures(record: ExpertRecord, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the statistics of a row. Labels and tags are read for many experts at once."""
    figures = {name: getattr(record, name) for name in FIGURES}
    unmeasured = {} if record.output_share else UNMEASURED
    return {**figures, **unmeasured, "top_tokens": _top_tokens(record, vocabulary)}


def top_tokens(record: ExpertRecord, vocabulary: Vocabulary) -> tuple[TokenCount, ...]:
    """Return the top tokens of an expert."""
    return tuple(map(TokenCount.model_validate, _top_tokens(record, vocabulary)))


def _top_tokens(record: ExpertRecord, vocabulary: Vocabulary) -> list[dict[str, Any]]:
    tokens, counts = zip(*record.top_tokens, strict=True) if record.top_tokens else ((), ())
    return token_counts(tokens, counts, record.active_tokens, vocabulary)


def token_counts(
    tokens: Sequence[int], counts: Sequence[int], active_tokens: int, vocabulary: Vocabulary
) -> list[dict[str, Any]]:
    """Return token ids with their counts as ``TokenCount`` dicts."""
    active = max(active_tokens, 1)
    return [
        {"id": token, "text": text, "count": count, "share": count / active}
        for token, text, count in zip(tokens, vocabulary.names(tokens), counts, strict=True)
    ]


def find_expert(session: Session, run: RunRecord, expert: int) -> ExpertRecord:
    """Return the statistics of an expert.

    Raises:
        NoIndexError: the run is not indexed.
        ExpertNotFoundError: the run has no such expert.
    """
    record = session.get(ExpertRecord, (run.id, expert))
    if record is None:
        check_expert(run, expert)
        find_index(session, run)
        raise not_indexed(run, expert)
    return record


def not_indexed(run: RunRecord, expert: int) -> ExpertNotFoundError:
    """Return the error for an expert that is missing from the index."""
    return ExpertNotFoundError(f"Expert {expert} is missing from the index of '{run.name}'. Index the run again.")


def check_expert(run: RunRecord, expert: int) -> None:
    """Check that an expert exists.

    Raises:
        ExpertNotFoundError: it is not.
    """
    if not 0 <= expert < run.num_experts:
        raise ExpertNotFoundError(unknown_expert(expert, run.name, run.num_experts))


def random_expert(run: RunRecord, columns: Columns, chance: random.Random) -> int:
    """An active expert, each as likely as the others.

    Raises:
        NoIndexError: no expert was active in the index.
    """
    if len(columns.active) == 0:
        raise NoIndexError(f"Run '{run.name}' has no active experts. Index more text.")
    return int(chance.choice(columns.active))


def with_names(
    session: Session, run: RunRecord, similar: Sequence[tuple[int, float]], vocabulary: Vocabulary
) -> tuple[SimilarExpert, ...]:
    """Return similar experts with labels and top tokens; without an index, labels only."""
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
    """Return the statistics of those of ``experts`` that are indexed."""
    statement = select(ExpertRecord).where(ExpertRecord.run_id == run.id, among(session, ExpertRecord.expert, experts))
    return {record.expert: record for record in session.scalars(statement)}


def units(session: Session, run: RunRecord, experts: Collection[int]) -> dict[int, float]:
    """Return the 99th percentile of each expert's activation, the unit of edits; 1 if unknown."""
    records = known(session, run, experts)
    return {expert: records[expert].p99 if expert in records else 1.0 for expert in experts}
