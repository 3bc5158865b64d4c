"""Checks of single values in a bundle's rows. Each raises ``InvalidValueError``, whose message names the value."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import chain
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

Row = dict[str, Any]

LARGEST_FLOAT = 1e30
"""Products and differences of such numbers are finite."""
LARGEST_WHOLE = 2**53
"""Larger whole numbers are not exact in JavaScript."""
DEEPEST = 20
LONGEST_LIST = 4096
LONGEST_SEQUENCE = 2**16
"""Positions are stored as 16-bit numbers."""
YEARS = range(2000, 2200)


class InvalidValueError(ValueError):
    """A value that no reader expects; the message names it."""


def check_plain(name: str, value: object, depth: int = 0) -> None:
    """Check a value at any depth: finite numbers, text that UTF-8 can encode, dates of this era."""
    if isinstance(value, Mapping | list):
        if depth > DEEPEST:
            raise InvalidValueError(f"{name} is nested too deeply")
        for item in _inside(value):
            check_plain(name, item, depth + 1)
    elif (problem := _problem(value)) is not None:
        raise InvalidValueError(f"{name} {problem}")


def _inside(value: Mapping[str, Any] | list[Any]) -> Iterable[object]:
    return value if isinstance(value, list) else chain(value.keys(), value.values())


def _problem(value: object) -> str | None:
    """Return what is wrong with a single value."""
    if isinstance(value, str):
        halved = not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value)
        return "holds half of a character" if halved else None
    if isinstance(value, float):
        return None if abs(value) <= LARGEST_FLOAT else f"is {value:g}"
    if isinstance(value, int):
        return None if abs(value) <= LARGEST_WHOLE else "is above 2**53"
    return f"is in the year {value.year}" if isinstance(value, datetime) and value.year not in YEARS else None


def check_whole(name: str, value: object, end: int = LARGEST_WHOLE) -> int:
    """Return a whole number from 0 to ``end`` - 1."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON columns may turn counts into floats
    if type(value) is not int or not 0 <= value < end:
        raise InvalidValueError(f"{name} is {str(value)[:40]}, not a whole number from 0 to {end - 1}")
    return value


def check_not_negative(row: Row, *names: str) -> None:
    """Check that columns are null or at least 0."""
    for name in names:
        if row[name] is not None and row[name] < 0:
            raise InvalidValueError(f"{name} is negative: {row[name]}")


def check_numbers(name: str, items: object, length: int) -> list[Any]:
    """Return a list of ``length`` numbers."""
    if not isinstance(items, list) or len(items) != length or any(type(item) not in (int, float) for item in items):
        raise InvalidValueError(f"{name} holds something else than {length} numbers")
    return items


def check_list(name: str, items: object) -> list[Any]:
    """Return a list of at most ``LONGEST_LIST`` items."""
    if not isinstance(items, list) or len(items) > LONGEST_LIST:
        raise InvalidValueError(f"{name} is not a list of at most {LONGEST_LIST} items")
    return items


def read_array(name: str, value: bytes, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return the numbers of packed bytes."""
    if len(value) % dtype.itemsize:
        raise InvalidValueError(f"{name} has {len(value)} bytes, not a multiple of {dtype.itemsize}")
    return np.frombuffer(value, dtype)


def check_finite(name: str, values: np.ndarray[Any, Any]) -> None:
    """Check that numbers are finite and not huge."""
    if not bool((np.abs(values) <= LARGEST_FLOAT).all()):
        raise InvalidValueError(f"{name} has values that are not finite")


def check_as_written(adapter: TypeAdapter[Any], stored: object) -> None:
    """Check that a stored result is what ``finite(asdict(result))`` writes: numbers may be null.

    Other versions of the program may have written more or fewer fields, but not inside of fields that are known.
    """
    filled = json.loads(json.dumps(stored))
    try:
        result = adapter.validate_json(json.dumps(filled), strict=True)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            # Histograms and curves have no gaps.
            if one["type"] != "float_type" or one["input"] is not None or isinstance(one["loc"][-1], int):
                raise
            _fill(filled, one["loc"])
        result = adapter.validate_json(json.dumps(filled), strict=True)
    written = adapter.dump_python(result, mode="json")
    if any(filled[name] != value for name, value in written.items() if name in filled):
        raise InvalidValueError("result has fields that no program writes")


def _fill(value: Any, place: tuple[int | str, ...]) -> None:
    for part in place[:-1]:
        value = value[part]
    value[place[-1]] = 0.0
