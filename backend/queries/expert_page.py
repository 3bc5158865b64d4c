"""Filtered and sorted pages of experts, from memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.queries.expert_table import NOT_COMPARED, NUMBERS, UNMEASURED, WHOLE, Columns, Mask
from mxd.backend.queries.experts import SORT_COLUMNS, ExpertQuery, cursor_at, last_of, token_counts
from mxd.backend.queries.run_cache import BrowsedRun


def rows_at(browsed: BrowsedRun, places: Sequence[int], vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Return rows for some column indices."""
    columns = browsed.columns
    at = np.array(places, np.int64)
    values = [columns.values[name][at].astype(np.int64).tolist() for name in WHOLE]
    values += [columns.values[name][at].tolist() for name in NUMBERS]
    names = (*WHOLE, *NUMBERS)
    top_tokens, histograms = columns.packed["top_tokens"].at(places), columns.packed["histogram"].at(places)
    rows = []
    recurrences = _recurrences(columns, at)
    each = zip(zip(*values, strict=True), top_tokens, histograms, recurrences, strict=True)
    for numbers, tokens, histogram, compared in each:
        row: dict[str, Any] = dict(zip(names, numbers, strict=True))
        expert = row["expert"]
        row["label"] = browsed.labels.get(expert)
        row["automatic"] = browsed.automatic.of(expert)
        row["tags"] = browsed.tags.get(expert, ())
        row |= {} if row["output_share"] else UNMEASURED
        row |= compared
        row["top_tokens"] = token_counts(tokens[::2], tokens[1::2], row["active_tokens"], vocabulary)
        row["histogram"] = histogram
        rows.append(row)
    return rows


def _recurrences(columns: Columns, at: NDArray[np.int64]) -> list[Mapping[str, int | None]]:
    numbers, runs = (columns.values[name][at].astype(np.int64).tolist() for name in NOT_COMPARED)
    return [
        {"recurrence": number, "compared_runs": of} if of else NOT_COMPARED
        for number, of in zip(numbers, runs, strict=True)
    ]


FILTERED = ("density", "mean_activation", "max_activation")


def expert_page(
    browsed: BrowsedRun,
    query: ExpertQuery,
    selections: Sequence[NDArray[Any]],
    vocabulary: Vocabulary,
    matches: Sequence[int] = (),
) -> dict[str, Any]:
    """Return a page of experts as ``ExpertPage``. Dead experts are included unless the filters exclude them.

    Args:
        browsed: the run.
        query: order, filters and cursor.
        selections: experts that match the search, the tag and the list, for each that is requested.
        vocabulary: vocabulary of the run's tokenizer.
        matches: best matches of the search, for the order ``match``.
    """
    total, descending = browsed.record.num_experts, query.order == "desc"
    chosen = _chosen(query, selections, browsed.columns)
    columns = _ordered(browsed, query, matches)
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


def _ordered(browsed: BrowsedRun, query: ExpertQuery, matches: Sequence[int]) -> Columns:
    if query.sort == "match":
        return browsed.by_label[False].with_matches(matches)
    if query.sort == "label":
        return browsed.by_label[query.order == "desc"]
    return browsed.columns.ascending if query.order == "asc" else browsed.columns.descending


def is_whole(query: ExpertQuery) -> bool:
    """Return whether a query has no filters and an order with a database index."""
    bounds = (getattr(query, f"{end}_{name}") for end in ("min", "max") for name in FILTERED)
    chosen = (query.search or None, query.token, query.tag, query.list, query.among, query.min_recurrence, *bounds)
    return query.sort in SORT_COLUMNS and all(value is None for value in chosen)


def _chosen(query: ExpertQuery, selections: Sequence[NDArray[Any]], columns: Columns) -> Mask | None:
    """Return a mask of the experts that pass all filters; None if there are none."""
    masks: list[Mask] = []
    for name in FILTERED:
        column = columns.values[name]
        low, high = getattr(query, f"min_{name}"), getattr(query, f"max_{name}")
        if low is not None:
            masks.append(column >= low)
        if high is not None:
            masks.append(column <= high)
    if query.min_recurrence is not None:
        masks.append(columns.values["recurrence"] >= query.min_recurrence)
    masks += (columns.among(experts) for experts in selections)
    return np.logical_and.reduce(masks) if masks else None
