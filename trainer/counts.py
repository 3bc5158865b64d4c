"""Whole numbers in settings: how they may be written, and how large they may be."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field

_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
_COUNT = re.compile(r"^(\d+(?:\.\d+)?)\s*([kmb]?)$", re.IGNORECASE)


def parse_count(value: object) -> object:
    """Read ``20M``, ``1.5b`` or ``250k`` as a whole number; leave anything else to pydantic."""
    found = _COUNT.match(value.strip()) if isinstance(value, str) else None
    return round(float(found[1]) * _SUFFIXES[found[2].lower()]) if found else value


Size = Annotated[int, Field(gt=0, lt=2**28)]
"""Of one side of a weight matrix; of larger ones not even the size can be told."""
Count = Annotated[int, BeforeValidator(parse_count), Field(gt=0)]
"""A positive whole number that may be written 250k, 20M or 1B."""
