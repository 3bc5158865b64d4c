"""Display: numbers as text, tables as HTML for notebooks, safe text, suggestions in errors, documented schemas."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from difflib import get_close_matches
from html import escape

from pydantic import ConfigDict

TABLE = "border-collapse:collapse;text-align:left"
CELL = "padding:2px 12px 2px 0;vertical-align:top;text-align:left"


def labelled_values(pairs: Iterable[tuple[str, str]]) -> str:
    return "<div>" + " · ".join(f"{escape(name)} <b>{escape(value)}</b>" for name, value in pairs) + "</div>"


def html_table(head: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    """Return a table. ``cells`` are HTML; ``head`` is plain text."""
    top = "".join(f'<th style="{CELL}">{escape(name)}</th>' for name in head)
    body = "".join("<tr>" + "".join(f'<td style="{CELL}">{cell}</td>' for cell in row) + "</tr>" for row in cells)
    return f'<table style="{TABLE}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'


def fixed(value: float, digits: int) -> str:
    """Return a value with fixed decimals, with a true minus sign and no sign before zero."""
    text = f"{value:.{digits}f}"
    return text.replace("-", "−" if float(text) else "")


def signed(value: float, digits: int = 2) -> str:
    """Return a difference, signed unless it rounds to zero."""
    text = fixed(value, digits)
    return f"+{text}" if value > 0 and float(text) else text


def listed(texts: Sequence[str]) -> str:
    """Return ``a, b and c``."""
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


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


class Documented:
    """Base of dataclasses whose JSON schema has their attribute docstrings, and in which defaults always exist."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(use_attribute_docstrings=True, json_schema_serialization_defaults_required=True)


class ShortRepr(Documented):
    """Base of dataclasses of results, whose ``repr`` fits a screen: long values are abbreviated."""

    def __repr__(self) -> str:
        values = []
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            is_long = isinstance(value, Collection) and not isinstance(value, str) and len(value) > SHOWN_ITEMS
            text = f"<{len(value)} items>" if is_long else repr(value)
            short = text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."
            values.append(f"{field.name}={short}")
        return f"{type(self).__name__}({', '.join(values)})"


def suggest(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the name in ``known`` nearest to ``name``, or with these initials, such as
    ``lr`` for ``learning_rate``; nothing if none is near."""
    names = list(known)
    initials = [other for other in names if "".join(word[:1] for word in re.split("[_-]", other)) == name]
    nearest = get_close_matches(name, names, n=1) or initials
    return f" Did you mean '{nearest[0]}'?" if nearest else ""


def unknown_run(name: str, known: Iterable[str]) -> str:
    names = list(known)
    if not names:
        return f"Unknown run '{name}'. There are no runs yet. Train one with 'mxd train'."
    return f"Unknown run '{name}'.{suggest(name, names)} Run 'mxd runs' for a list."


def unknown_expert(expert: int, run: str, num_experts: int) -> str:
    return f"Unknown expert {expert}. Run '{run}' has experts 0 to {num_experts - 1}."
