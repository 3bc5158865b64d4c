"""SQL that several queries share: conditions, and examples joined with their token sequences."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import ColumnElement, LargeBinary, and_, func, select, type_coerce
from sqlalchemy.orm import InstrumentedAttribute, Session

from mxd.trainer.storage.database.tables import ExampleRecord, SequenceRecord


def among(session: Session, column: InstrumentedAttribute[int], values: Collection[int]) -> ColumnElement[bool]:
    """Return ``column IN values`` for any number of values."""
    if session.get_bind().dialect.name != "sqlite":
        return column.in_(list(values))
    # SQLite limits the number of parameters; a JSON list is one parameter.
    values_table = func.json_each(json.dumps(sorted(values))).table_valued("value")
    return column.in_(select(values_table.c.value))


class StoredExample(NamedTuple):
    """A stored example with its token sequence."""

    expert: int
    bin: int
    rank: int
    sequence: int
    position: int
    activation: float
    active: bytes
    """Packed positions and activations."""
    token_ids: list[int]


PACKED = ("active", "token_ids")
NUMBERS = (getattr(ExampleRecord, name) for name in StoredExample._fields if name not in PACKED)
# Packed: a search reads far more examples than it displays.
PACKED_COLUMNS = (
    type_coerce(ExampleRecord.active, LargeBinary).label("active"),
    type_coerce(SequenceRecord.token_ids, LargeBinary).label("token_ids"),
)
WITH_TOKENS = select(*NUMBERS, *PACKED_COLUMNS).join(
    SequenceRecord,
    and_(SequenceRecord.run_id == ExampleRecord.run_id, SequenceRecord.sequence == ExampleRecord.sequence),
)
