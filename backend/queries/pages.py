"""Pages of the table of experts, in any order, filtered and searched, from memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.queries.browsing import BrowsedRun
from backend.queries.experts import ExpertQuery, cursor_at, last_of, puts_dead_last
from backend.queries.rows import rows_at
from backend.queries.table import Columns, Mask
from backend.vocabulary import Vocabulary

FILTERED = ("usage", "mean", "largest")


def expert_page(
    browsed: BrowsedRun, query: ExpertQuery, found: Sequence[NDArray[Any]], vocabulary: Vocabulary
) -> dict[str, Any]:
    """A page of experts in the shape of ``ExpertPage``, dead ones included unless the filters leave them out.

    Args:
        browsed: the run.
        query: order, filters and place.
        found: experts that the search leaves, the tag, the list: each that is asked for.
        vocabulary: of the run.
    """
    total, descending = browsed.record.num_experts, query.order == "desc"
    chosen = _chosen(query, found, browsed.columns)
    columns = _ordered(browsed, query)
    ids = columns.after(chosen, query.sort, descending, last_of(query), query.limit + 1)
    shown = ids[: query.limit]
    more = len(ids) > query.limit
    places = columns.places(shown)
    return {
        "experts": rows_at(browsed, [places[expert] for expert in shown], vocabulary),
        "next_cursor": cursor_at(query, columns.value(query.sort, shown[-1]), shown[-1]) if more else None,
        "matching": total if chosen is None else int(chosen.sum()),
        "total": total,
    }


def _ordered(browsed: BrowsedRun, query: ExpertQuery) -> Columns:
    if query.sort == "label":
        return browsed.by_label[query.order == "desc"]
    return browsed.columns.dead_last if puts_dead_last(query) else browsed.columns


def is_whole(query: ExpertQuery) -> bool:
    """Whether a query is for all experts, in an order that the store has an index for."""
    bounds = (getattr(query, f"{end}_{name}") for end in ("min", "max") for name in FILTERED)
    chosen = (query.search or None, query.token, query.tag, query.list, query.among, *bounds)
    return query.sort != "label" and all(it is None for it in chosen)


def _chosen(query: ExpertQuery, found: Sequence[NDArray[Any]], columns: Columns) -> Mask | None:
    """Which experts the filters and the sets leave; None where nothing is filtered."""
    masks: list[Mask] = []
    for name in FILTERED:
        column = columns.values[name]
        low, high = getattr(query, f"min_{name}"), getattr(query, f"max_{name}")
        if low is not None:
            masks.append(column >= low)
        if high is not None:
            masks.append(column <= high)
    masks += (columns.among(experts) for experts in found)
    return np.logical_and.reduce(masks) if masks else None
