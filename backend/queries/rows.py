"""Rows of the table of experts from memory: hundreds of small things a page, so plain data like ``ExpertRow``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from backend.queries.browsing import BrowsedRun
from backend.vocabulary import Vocabulary

WHOLE = ("expert", "active_tokens")
NUMBERS = (
    "usage",
    "mean",
    "largest",
    "p99",
    "entropy",
    "added_loss",
    "kl_up",
    "output_share",
    "input_dependence",
    "histogram_high",
)
"""What a row has as the index says it, besides ``WHOLE`` ones."""


def rows_at(browsed: BrowsedRun, places: Sequence[int], vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Rows of the experts at some places of the columns."""
    columns = browsed.columns
    at = np.array(places, np.int64)
    values = [columns.values[name][at].astype(np.int64).tolist() for name in WHOLE]
    values += [columns.values[name][at].tolist() for name in NUMBERS]
    names = (*WHOLE, *NUMBERS)
    top_tokens, histograms = columns.packed["top_tokens"].at(places), columns.packed["histogram"].at(places)
    rows = []
    for numbers, tokens, histogram in zip(zip(*values, strict=True), top_tokens, histograms, strict=True):
        row: dict[str, Any] = dict(zip(names, numbers, strict=True))
        expert = row["expert"]
        row["label"] = browsed.labels.get(expert)
        row["automatic"] = browsed.automatic.of(expert)
        row["tags"] = browsed.tags.get(expert, ())
        row["measured"] = row["output_share"] > 0
        row["top_tokens"] = token_counts(tokens, row["active_tokens"], vocabulary)
        row["histogram"] = histogram
        rows.append(row)
    return rows


def token_counts(numbers: Sequence[int], active_tokens: int, vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """(token id, count, token id, count, …) in the shape of ``TokenCount``."""
    active = max(active_tokens, 1)
    tokens, counts = numbers[::2], numbers[1::2]
    return [
        {"id": token, "text": text, "count": count, "share": count / active}
        for token, text, count in zip(tokens, vocabulary.names(tokens), counts, strict=True)
    ]
