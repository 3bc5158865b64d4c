"""Export and import of a run's rows, for bundles."""

import base64
import binascii
import struct
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, Boolean, Column, DateTime, Float, Integer, LargeBinary, String, Table, insert, select
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.column_types import PackedActive, PackedCounts, PackedPairs, PackedTokenIds
from mxd.trainer.storage.database.open import INDEX_RECORDS
from mxd.trainer.storage.database.tables import EvaluationRecord, ProbeRecord, RunRecord

BYTES = (LargeBinary, PackedActive, PackedTokenIds)
LISTS = (PackedPairs, PackedCounts)
_PLAIN: tuple[tuple[type[Any], tuple[type[Any], ...]], ...] = (
    (Boolean, (bool,)),
    (Float, (float, int)),
    (Integer, (int,)),
    (String, (str,)),
    (JSON, (dict, list)),
)
"""Column types and their Python types. JSON may turn 1.0 into 1, so floats accept int."""


def as_json(table: Table, row: Mapping[str, Any], left_out: frozenset[str]) -> dict[str, Any]:
    """Return a row without some columns as JSON values: bytes in base64, times in ISO 8601."""
    values = {column.name: row[column.name] for column in table.columns if column.name not in left_out}
    for name, value in values.items():
        if isinstance(value, bytes):
            values[name] = base64.b64encode(value).decode("ascii")
        elif isinstance(value, datetime):
            values[name] = value.isoformat()
    return values


def from_json(table: Table, values: object, left_out: frozenset[str]) -> dict[str, Any]:
    """Decode the output of ``as_json``, also of a version that lacked nullable columns of today. Raises
    UserError if a column is missing or unknown, or has the wrong type."""
    columns = {column.name: column for column in table.columns if column.name not in left_out}
    given = values if isinstance(values, dict) else {}
    if given.keys() | {name for name, column in columns.items() if column.nullable} != columns.keys():
        raise UserError(f"Invalid row: its columns are not those of table {table.name}.")
    return {name: _decoded(column, given.get(name)) for name, column in columns.items()}


def _decoded(column: Column[Any], value: Any) -> Any:
    if value is None and column.nullable:
        return None
    try:
        if isinstance(column.type, BYTES):
            return base64.b64decode(value, validate=True)
        if isinstance(column.type, DateTime):
            moment = datetime.fromisoformat(value)
            # SQLite drops the zone, and PostgreSQL takes times without one for local ones.
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, binascii.Error) as error:
        raise _invalid(column) from error
    if isinstance(column.type, LISTS):
        if not isinstance(value, list):
            raise _invalid(column)
        return value
    for kind, types in _PLAIN:
        if isinstance(column.type, kind):
            if type(value) not in types:
                raise _invalid(column)
            return value
    raise AssertionError(f"unsupported column type: {column.type}")


def _invalid(column: Column[Any]) -> UserError:
    return UserError(f"Invalid value in {column.table.name}.{column.name}: wrong type.")


RUN_TABLES: dict[str, Table] = {
    record.__tablename__: record.__table__  # type: ignore[misc]
    for record in (*INDEX_RECORDS, EvaluationRecord, ProbeRecord)
}
"""Tables with rows of runs, in insertion order. Runs and metrics are exported with the run directory."""
EXCLUDED_COLUMNS = frozenset({"run_id", "id"})
BATCH_ROWS = 2000


def rows_of_run(session: Session, run: RunRecord, table: Table) -> Iterator[dict[str, Any]]:
    """Yield a run's rows of a table. Joint evaluations with other runs are left out."""
    conditions = [table.c.run_id == run.id]
    if table.name == EvaluationRecord.__tablename__:
        subject = table.c.subject
        conditions.append((subject == run.name) | subject.startswith(f"{run.name} at K ", autoescape=True))
    query = select(table).where(*conditions).order_by(*table.primary_key.columns)
    for row in session.execute(query.execution_options(yield_per=BATCH_ROWS)).mappings():
        yield as_json(table, dict(row), EXCLUDED_COLUMNS)


def insert_checked(session: Session, table: Table, values: list[dict[str, Any]]) -> None:
    """Insert rows from an untrusted source. Raises UserError if they cannot be encoded, or a key is missing or
    duplicated."""
    try:
        session.execute(insert(table), values)
    except OperationalError:
        raise  # a full disk or a locked database
    except (SQLAlchemyError, TypeError, ValueError, OverflowError, IndexError, struct.error) as error:
        raise UserError(f"Invalid rows for table {table.name}: the file is damaged.") from error
