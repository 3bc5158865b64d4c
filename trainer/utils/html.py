"""Tokens shaded by a number, as HTML for notebooks: no script, readable on light and dark pages, all text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

AMBER = (217, 139, 20)
"""RGB colour of activations, as in the dashboard."""
HIGHER = (38, 137, 83)
"""RGB colour (green) of increased probabilities."""
LOWER = (140, 84, 190)
"""RGB colour (purple) of negative strengths."""
MAX_OPACITY = 0.6
"""Opacity at strength 1: text stays readable in both colour schemes."""
TEXT = "font-family:ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;line-height:1.7"
TABLE = "border-collapse:collapse;text-align:left"
CELL = "padding:2px 12px 2px 0;vertical-align:top;text-align:left"


class ShadedToken(NamedTuple):
    """One token and its shade."""

    text: str
    strength: float
    """Shade from -1 to 1. 0 is not shaded; negative values have the colour ``LOWER``."""
    title: str = ""
    """Tooltip."""
    peak: bool = False
    """True if the token has an outline, so that colour is not the only mark."""


def shaded_text(tokens: Iterable[ShadedToken], colour: tuple[int, int, int] = AMBER) -> str:
    """Tokens in a row, each on its shade."""
    return f'<span style="{TEXT}">{"".join(_token(token, colour) for token in tokens)}</span>'


def labelled_values(pairs: Iterable[tuple[str, str]]) -> str:
    """One line of names and values, separated by dots."""
    return "<div>" + " · ".join(f"{escape(name)} <b>{escape(value)}</b>" for name, value in pairs) + "</div>"


def html_table(head: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    """Return a table. ``cells`` are HTML; ``head`` is plain text."""
    top = "".join(f'<th style="{CELL}">{escape(name)}</th>' for name in head)
    body = "".join("<tr>" + "".join(f'<td style="{CELL}">{cell}</td>' for cell in row) + "</tr>" for row in cells)
    return f'<table style="{TABLE}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'


def _token(token: ShadedToken, colour: tuple[int, int, int]) -> str:
    red, green, blue = colour if token.strength >= 0 else LOWER
    style = f"background:rgba({red},{green},{blue},{MAX_OPACITY * min(abs(token.strength), 1.0):.2f})"
    if token.peak:
        style += ";outline:1px solid currentColor"
    # Line breaks get a visible symbol, which carries the shade.
    text = escape(token.text).replace("\n", "⏎\n")
    return f'<span style="{style}" title="{escape(token.title)}">{text}</span>'
