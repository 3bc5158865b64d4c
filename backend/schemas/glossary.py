"""The glossary: terms on screen with their definitions."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mxd.backend.schemas.base import Schema

TERMS: dict[str, dict[str, list[str]]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
"""Name and text of each term, by heading and id, as ``glossary.toml`` explains."""

if TYPE_CHECKING:
    TermId = str
else:
    TermId = Literal[tuple(term for terms in TERMS.values() for term in terms)]


class Definition(Schema):
    """A term with its definition."""

    id: TermId
    name: str
    text: str


class GlossarySection(Schema):
    """Terms on one subject."""

    heading: str
    terms: tuple[Definition, ...]
