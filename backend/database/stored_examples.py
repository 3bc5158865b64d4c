"""Examples as stored, joined with their token sequences."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import LargeBinary, and_, select, type_coerce

from mxd.trainer.storage.database.tables import ExampleRecord, SequenceRecord


class StoredExample(NamedTuple):
    """A stored example with its token sequence."""

    expert: int
    bin: int
    rank: int
    sequence: int
    position: int
    coefficient: float
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
