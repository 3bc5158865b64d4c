"""Text of others for terminals and spreadsheets, which would obey some of its characters."""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters other than tab and line feed. Terminals obey the sequences that they begin."""
_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")


def printable(text: str) -> str:
    """Return ``text`` with control characters as JSON escapes, so that a terminal displays them."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def spreadsheet_text(text: str) -> str:
    """Return ``text`` with an apostrophe in front if a spreadsheet would compute it as a formula."""
    return f"'{text}" if text.startswith(_FORMULA_SIGNS) else text
