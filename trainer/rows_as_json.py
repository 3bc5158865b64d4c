"""Rows of tables as JSON and back: every value checked against its column, since they may come from anybody."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Boolean, Column, DateTime, Float, Integer, LargeBinary, String, Table

from trainer.errors import UserError
from trainer.packing import PackedActive, PackedCounts, PackedPairs, PackedTokenIds

BYTES = (LargeBinary, PackedActive, PackedTokenIds)
LISTS = (PackedPairs, PackedCounts)
_PLAIN: tuple[tuple[type[Any], tuple[type[Any], ...]], ...] = (
    (Boolean, (bool,)),
    (Float, (float, int)),
    (Integer, (int,)),
    (String, (str,)),
    (JSON, (dict, list)),
)
"""Kinds of columns and what their values are in Python; Text is a String, and a float of a whole number an int."""


def as_json(table: Table, row: Mapping[str, Any], left_out: frozenset[str]) -> dict[str, Any]:
    """A row without some columns, for ``json.dumps``: bytes in base 64, times in ISO 8601."""
    return {column.name: _encoded(row[column.name]) for column in table.columns if column.name not in left_out}


def _encoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value.isoformat() if isinstance(value, datetime) else value


def from_json(table: Table, values: object, left_out: frozenset[str]) -> dict[str, Any]:
    """The row that ``as_json`` was given, without those columns.

    Raises:
        UserError: a column is missing, unknown or of another kind.
    """
    columns = {column.name: column for column in table.columns if column.name not in left_out}
    if not isinstance(values, dict) or values.keys() != columns.keys():
        raise UserError(f"A row of {table.name} does not have the columns of that table.")
    return {name: _decoded(column, values[name]) for name, column in columns.items()}


def _decoded(column: Column[Any], value: Any) -> Any:
    if value is None and column.nullable:
        return None
    try:
        if isinstance(column.type, BYTES):
            return base64.b64decode(value, validate=True)
        if isinstance(column.type, DateTime):
            return datetime.fromisoformat(value)
    except (ValueError, TypeError, binascii.Error) as error:
        raise _wrong(column) from error
    if isinstance(column.type, LISTS):
        if not isinstance(value, list):
            raise _wrong(column)
        return value
    for kind, found in _PLAIN:
        if isinstance(column.type, kind):
            if type(value) not in found:
                raise _wrong(column)
            return value
    raise AssertionError(f"a kind of column that is not known: {column.type}")


def _wrong(column: Column[Any]) -> UserError:
    return UserError(f"A value of {column.table.name}.{column.name} is not of its kind.")
