"""Text of others for terminals and spreadsheets, which would obey some of its characters."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import fields
from typing import Any

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters other than tab and line feed. Terminals obey the sequences that they begin."""
SHOWN_ITEMS, SHOWN_CHARACTERS = 8, 120
"""Longest collection, and longest text of a value, in a ``repr``."""
_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")


def printable(text: str) -> str:
    """Return ``text`` with control characters as JSON escapes, so that a terminal displays them."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def spreadsheet_text(text: str) -> str:
    """Return ``text`` with an apostrophe in front if a spreadsheet would compute it as a formula."""
    return f"'{text}" if text.startswith(_FORMULA_SIGNS) else text


class ShortRepr:
    """Base of dataclasses of results, whose ``repr`` fits a screen: long values are abbreviated."""

    def __repr__(self) -> str:
        values = ", ".join(f"{field.name}={_short(getattr(self, field.name))}" for field in fields(self))  # type: ignore[arg-type]
        return f"{type(self).__name__}({values})"


def _short(value: Any) -> str:
    if isinstance(value, Collection) and not isinstance(value, str) and len(value) > SHOWN_ITEMS:
        return f"<{len(value)} items>"
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."
