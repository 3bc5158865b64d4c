"""Tokens shaded by a number, as HTML for notebooks: no script, readable on light and dark pages, all text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

COEFFICIENT = (217, 139, 20)
"""Amber, as on the dashboard."""
MORE = (38, 137, 83)
"""Green: more probable."""
LESS = (140, 84, 190)
"""Purple: less probable."""
DENSEST = 0.6
"""Opacity of the strongest shade: text on it stays readable in both schemes."""
TEXT = "font-family:ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;line-height:1.7"
TABLE = "border-collapse:collapse;text-align:left"
CELL = "padding:2px 12px 2px 0;vertical-align:top;text-align:left"


class Shaded(NamedTuple):
    """One token."""

    text: str
    strength: float
    """From -1 to 1; 0 is not shaded, and below it the shade is that of less."""
    title: str = ""
    """Shown where the pointer rests on it."""
    peak: bool = False
    """Drawn with a frame, so that colour is not alone."""


def shaded_text(tokens: Iterable[Shaded], colour: tuple[int, int, int] = COEFFICIENT) -> str:
    """Tokens one after the other, each behind its shade."""
    return f'<span style="{TEXT}">{"".join(_token(token, colour) for token in tokens)}</span>'


def figures(named: Iterable[tuple[str, str]]) -> str:
    """Names and values in one line, with dots between."""
    return "<div>" + " · ".join(f"{escape(name)} <b>{escape(value)}</b>" for name, value in named) + "</div>"


def rows(head: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    """A table; ``cells`` are HTML already, ``head`` is text."""
    top = "".join(f'<th style="{CELL}">{escape(name)}</th>' for name in head)
    body = "".join("<tr>" + "".join(f'<td style="{CELL}">{cell}</td>' for cell in row) + "</tr>" for row in cells)
    return f'<table style="{TABLE}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'


def _token(token: Shaded, colour: tuple[int, int, int]) -> str:
    red, green, blue = colour if token.strength >= 0 else LESS
    style = f"background:rgba({red},{green},{blue},{DENSEST * min(abs(token.strength), 1.0):.2f})"
    if token.peak:
        style += ";outline:1px solid currentColor"
    # A line break is drawn, and then broken: else what is on the token would not be seen.
    text = escape(token.text).replace("\n", "⏎\n")
    return f'<span style="{style}" title="{escape(token.title)}">{text}</span>'
