"""Plotly figures."""

from __future__ import annotations

from typing import Literal

from mxd.backend.schemas.base import Schema

FigureName = Literal[
    "training",
    "density-activation",
    "similarity-map",
    "density-histogram",
    "frontier",
    "coefficients",
    "steering",
    "loss-frontier",
    "error-frontier",
    "faithfulness",
    "routing-frontier",
    "added-layers",
    "load",
    "density-evaluated",
    "probing",
    "probe-coefficients",
]


class Figure(Schema):
    """A Plotly figure without colours. The client sets them by theme, from each trace's role in ``meta``."""

    name: FigureName
    title: str
    data: list[dict[str, object]]
    """Plotly traces."""
    layout: dict[str, object]
    """Plotly layout."""
    drawn: int
    """Number of points drawn."""
    total: int
    """Number of points before sampling."""
