"""Figures."""

from __future__ import annotations

from typing import Literal

from backend.schemas.base import Schema

FigureName = Literal[
    "training",
    "usage-strength",
    "similarity-map",
    "usage-histogram",
    "frontier",
    "coefficients",
    "steering",
    "loss-frontier",
    "error-frontier",
    "faithfulness",
    "routing-frontier",
    "added-layers",
    "layer-errors",
    "load",
    "usage-evaluated",
    "probing",
    "probe-coefficients",
]


class Figure(Schema):
    """A Plotly figure. Colours are left to the front end, which knows the theme; traces say their role in ``meta``."""

    name: FigureName
    title: str
    data: list[dict[str, object]]
    layout: dict[str, object]
    drawn: int
    """Points drawn …"""
    total: int
    """… of how many."""
