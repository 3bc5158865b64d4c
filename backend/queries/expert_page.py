"""Filtered and sorted pages of experts: chosen in memory, read from the database."""

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field, create_model
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from mxd.backend.database.annotations import entries_of, find_list, tagged
from mxd.backend.database.engine import reading
from mxd.backend.errors import CursorError, NoIndexError
from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.queries.examples import ExpertCursor
from mxd.backend.queries.expert_table import BrowsedRun, Floats, Mask, RunCache
from mxd.backend.queries.experts import described, known
from mxd.backend.queries.search import MAX_RANKED, SearchText, find_experts, search_run
from mxd.backend.schemas.base import Schema
from mxd.backend.schemas.experts import Order, PageSort
from mxd.trainer.storage.database.expert_columns import BOUNDS

COMMON_DENSITY = 0.01
"""Experts above this density mostly fire on function words."""


class PageQuery(Schema):
    """Order and filters of a page of experts, without the bounds of columns."""

    sort: PageSort = "max_activation"
    """Column or one of three words. ``match``, ascending: the best matches of ``search`` first, the others by label.
    ``credible``, descending: experts with a clear label and a density of at most 1 % first, the most steerable first.
    ``random``: another order for each request, without further pages."""
    order: Order = "desc"
    search: SearchText | None = None
    """Text to search in labels, top tokens and examples."""
    token: Annotated[str | None, Field(min_length=1, max_length=100)] = None
    """Only experts with this top token, ignoring case and surrounding spaces."""
    tag: Annotated[str | None, Field(max_length=60)] = None
    """Only experts with this tag."""
    list: Annotated[int | None, Field(ge=0, lt=2**31)] = None
    """Only experts in the list with this id."""
    among: Annotated[str | None, Field(max_length=30_000, pattern=r"^(active|steerable|\d{1,9}(,\d{1,9})*)$")] = None
    """Only these comma-separated expert ids, or ``active`` experts, or the most ``steerable`` ones."""
    cursor: Annotated[str | None, Field(max_length=1000)] = None
    """``next_cursor`` of the previous page, with the same order and filters."""
    limit: Annotated[int, Field(ge=1, le=200)] = 50


if TYPE_CHECKING:
    ExpertQuery = PageQuery
else:
    LIMITS = ({"allow_inf_nan": False}, {"ge": 0, "lt": 2**31})
    """Limits of bounds on numbers, and on counts."""
    WORDS = {"min": "Only experts with at least this value", "max": "Only experts with at most this value"}
    ExpertQuery = create_model(
        "ExpertQuery",
        __base__=PageQuery,
        __doc__="Order and filters of a page of experts.",
        **{
            name: (
                int | None if column.kind == "count" else float | None,
                Field(None, description=f"{WORDS[end]}. {column.description}", **LIMITS[column.kind == "count"]),
            )
            for name, (end, column) in BOUNDS.items()
        },
    )


def expert_page(
    database: Engine, cache: RunCache, run: str, query: ExpertQuery, vocabulary: Vocabulary
) -> dict[str, Any]:
    """Return a page of experts as ``ExpertPage``. Dead experts are included unless the filters exclude them."""
    browsed = cache.of(run)
    record, descending = browsed.record, query.order == "desc"
    with reading(database) as session:
        chosen = _chosen(session, cache, browsed, query, vocabulary)
        keys, last = _keys(session, cache, browsed, query, vocabulary), None
        if query.cursor is not None:
            end = ExpertCursor.decode(query.cursor)
            if (end.sort, end.order) != (query.sort, query.order):
                raise CursorError("The cursor belongs to another sort order. Start at the first page.")
            last = end.value, end.expert
        found = browsed.columns.after(keys, chosen, descending, last, query.limit + 1)
        shown = found[: query.limit]
        records = known(session, record, [expert for _, expert in shown])
        stored = [records[expert] for _, expert in shown if expert in records]
        cursor = None
        if len(found) > query.limit and query.sort != "random":
            value, expert = shown[-1]
            cursor = ExpertCursor(sort=query.sort, order=query.order, value=value, expert=expert).encode()
        late = ~_credible(browsed) if query.sort == "credible" else np.zeros(len(keys), bool)
        return {
            "experts": described(session, record, stored, vocabulary),
            "next_cursor": cursor,
            "late": int((late if chosen is None else late & chosen).sum()),
            "matching": record.num_experts if chosen is None else int(chosen.sum()),
            "total": record.num_experts,
        }


def _chosen(
    session: Session, cache: RunCache, browsed: BrowsedRun, query: ExpertQuery, vocabulary: Vocabulary
) -> Mask | None:
    """Return a mask of the experts that pass all filters; None if there are none."""
    columns, masks = browsed.columns, list[Mask]()
    for name, (end, column) in BOUNDS.items():
        if (bound := getattr(query, name)) is not None:
            values = columns.values[column.key]
            masks.append(values >= bound if end == "min" else values <= bound)
    if query.search:
        tokens = cache.tokens(session, browsed)
        masks.append(columns.among(find_experts(session, browsed, tokens, query.search, vocabulary)))
    if query.token is not None:
        users = cache.tokens(session, browsed).users(vocabulary.exact_matches(query.token))
        masks.append(columns.among(users))
    if query.tag is not None:
        masks.append(columns.among(tagged(session, browsed.record.name, query.tag)))
    if query.list is not None:
        entries = entries_of(session, find_list(session, browsed.record.name, query.list))
        masks.append(columns.among({entry.expert for entry in entries}))
    if query.among in ("active", "steerable"):
        experts = columns.active if query.among == "active" else columns.most_steerable
        if len(experts) == 0:
            raise NoIndexError(f"Run '{browsed.record.name}' has no {query.among} experts. Index more text.")
        masks.append(columns.among(experts))
    elif query.among is not None:
        masks.append(columns.among([int(number) for number in query.among.split(",")]))
    return np.logical_and.reduce(masks) if masks else None


def _credible(browsed: BrowsedRun) -> Mask:
    """Return a mask of the experts with a clear label and a low density."""
    named = browsed.columns.among([*browsed.labels, *browsed.automatic.best_first])
    return named & (browsed.columns.values["density"] <= COMMON_DENSITY)


def _keys(session: Session, cache: RunCache, browsed: BrowsedRun, query: ExpertQuery, vocabulary: Vocabulary) -> Floats:
    columns, descending = browsed.columns, query.order == "desc"
    if query.sort == "random":
        return np.random.default_rng().random(len(columns.expert))
    if query.sort == "credible":
        return columns.steerability + 1e6 * _credible(browsed)
    if query.sort not in ("label", "match"):
        return columns.keys(query.sort, descending)
    by_label = columns.label_keys(browsed.labels, browsed.automatic.best_first, descending and query.sort == "label")
    if query.sort == "label":
        return by_label
    matches: list[int] = []
    if query.search:
        tokens = cache.tokens(session, browsed)
        found = search_run(session, browsed, tokens, query.search, None, MAX_RANKED, vocabulary)
        matches = [hit.expert for hit in found.hits]
    return columns.match_keys(matches, by_label)
