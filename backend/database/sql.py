"""SQL conditions shared by several queries."""

from __future__ import annotations

import json
from collections.abc import Collection

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session


def among(session: Session, column: InstrumentedAttribute[int], values: Collection[int]) -> ColumnElement[bool]:
    """Return ``column IN values`` for any number of values."""
    if session.get_bind().dialect.name != "sqlite":
        return column.in_(list(values))
    # SQLite limits the number of parameters; a JSON list is one parameter.
    values_table = func.json_each(json.dumps(sorted(values))).table_valued("value")
    return column.in_(select(values_table.c.value))
