"""Base class of all settings, and types that several settings share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
_COUNT = re.compile(r"^(\d+(?:\.\d+)?)\s*([kmb]?)$", re.IGNORECASE)


def parse_count(value: object) -> object:
    """Parse ``20M``, ``1.5b`` or ``250k`` as a whole number; return anything else unchanged for pydantic to check."""
    match = _COUNT.match(value.strip()) if isinstance(value, str) else None
    return round(float(match[1]) * _SUFFIXES[match[2].lower()]) if match else value


Size = Annotated[int, Field(gt=0, lt=2**28)]
"""Side of a weight matrix. Larger values overflow when sizes are multiplied."""
Count = Annotated[int, BeforeValidator(parse_count), Field(gt=0)]
"""Positive whole number that may be written as 250k, 20M or 1B."""
INSTALLED_SAMPLE = Path(__file__).resolve().parents[1] / "sample"
"""Demo data inside an installed wheel; missing in a checkout."""
SAMPLE = INSTALLED_SAMPLE if INSTALLED_SAMPLE.is_dir() else Path(__file__).resolve().parents[2] / "data" / "demo"
"""Read-only data folder of the demo. Its runs can be loaded by name from anywhere."""


class Config(BaseModel):
    """Base class of all settings: immutable, rejects unknown names, documented by attribute docstrings."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=())


RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""Name of a run, also the name of its folder and its key in the database."""
