"""Conditions that several queries share."""

from __future__ import annotations

import json
from collections.abc import Collection

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session


def among(session: Session, column: InstrumentedAttribute[int], values: Collection[int]) -> ColumnElement[bool]:
    """``column IN values``, for any number of values."""
    if session.get_bind().dialect.name != "sqlite":
        return column.in_(list(values))
    # SQLite allows some thousand parameters in a statement; a JSON list is one.
    listed = func.json_each(json.dumps(sorted(values))).table_valued("value")
    return column.in_(select(listed.c.value))
