"""Escaping for plotly.js, which draws tags such as ``<b>`` and links in names, labels and classes as markup.

The dashboard does the same in ``escape-markup.ts``; the API returns plain texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

TRACE_TEXTS = ("text", "hovertext", "customdata", "name", "x", "y")
"""Fields that hold names, labels and classes. Templates are ours."""
AXIS_TEXTS = ("ticktext", "tickvals", "categoryarray")
ANNOTATION_TEXTS = ("text", "hovertext")


def escaped_traces(traces: list[dict[str, object]]) -> list[dict[str, Any]]:
    """Return the traces of a figure with every text escaped."""
    return [_fields(trace, TRACE_TEXTS) for trace in traces]


def escaped_layout(layout: Mapping[str, Any]) -> dict[str, Any]:
    """Return the layout of a figure with the texts of axes and annotations escaped."""
    result = dict(layout)
    for name in layout:
        if name[1:].startswith("axis"):
            result[name] = _fields(layout[name], AXIS_TEXTS)
    if "annotations" in result:
        result["annotations"] = [_fields(annotation, ANNOTATION_TEXTS) for annotation in result["annotations"]]
    return result


def _fields(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: _escaped(value) if name in names else value for name, value in values.items()}


def _escaped(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_escaped(item) for item in value]
    return escape(value, quote=False) if isinstance(value, str) else value
