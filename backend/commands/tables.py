"""Columns of text."""

from __future__ import annotations

from collections.abc import Sequence


def columns(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """Lines of a table: the first ``words`` columns to the left, numbers to the right."""
    table = [head, *rows]
    widths = [max(len(row[place]) for row in table) for place in range(len(head))]
    return [
        "  ".join(
            cell.ljust(width) if place < words else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
