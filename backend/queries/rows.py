"""Rows of the table of experts from memory: hundreds of small things a page, so plain data like ``ExpertRow``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from backend.queries.browsing import BrowsedRun
from backend.queries.experts import token_counts
from backend.queries.table import NUMBERS, WHOLE
from backend.vocabulary import Vocabulary


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
        row["top_tokens"] = token_counts(tokens[::2], tokens[1::2], row["active_tokens"], vocabulary)
        row["histogram"] = histogram
        rows.append(row)
    return rows
