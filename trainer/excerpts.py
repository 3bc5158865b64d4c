"""What a store holds of one run, as rows that can be taken to another store."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from sqlalchemy import Table, insert, select
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from trainer.errors import UserError
from trainer.rows_as_json import as_json, from_json
from trainer.store import (
    ContextRecord,
    EvaluationRecord,
    ExpertRecord,
    IndexRecord,
    InfluenceRecord,
    MeasurementRecord,
    ProbeRecord,
    RunRecord,
    SequenceRecord,
    SteeringDoseRecord,
)
from trainer.tables import AutomaticLabelRecord, RoutedRecord

OF_RUNS: dict[str, Table] = {
    record.__tablename__: record.__table__  # type: ignore[misc]
    for record in (
        IndexRecord,
        ExpertRecord,
        SequenceRecord,
        ContextRecord,
        RoutedRecord,
        AutomaticLabelRecord,
        InfluenceRecord,
        SteeringDoseRecord,
        MeasurementRecord,
        EvaluationRecord,
        ProbeRecord,
    )
}
"""Tables with rows of runs, in an order in which they can be filled; runs and metrics are in the run's folder."""
LEFT_OUT = frozenset({"run_id", "id"})
"""Columns that are another store's own."""
ROWS_AT_ONCE = 2000


def rows_of_run(session: Session, run: RunRecord, table: Table) -> Iterator[dict[str, Any]]:
    """All that a table holds of a run, a few at a time; of evaluations those of the run alone."""
    conditions = [table.c.run_id == run.id]
    if table.name == EvaluationRecord.__tablename__:
        conditions.append(table.c.subject == run.name)
    wanted = select(table).where(*conditions).order_by(*table.primary_key.columns)
    for row in session.execute(wanted.execution_options(yield_per=ROWS_AT_ONCE)).mappings():
        yield as_json(table, dict(row), LEFT_OUT)


def insert_rows(session: Session, run: RunRecord, table: Table, rows: Iterable[object]) -> None:
    """Enter what ``rows_of_run`` gave of a run, of whatever name, in the caller's transaction.

    Raises:
        UserError: a row is not one of the table.
    """
    for some in batched_rows(rows):
        values = [from_json(table, row, LEFT_OUT) | {"run_id": run.id} for row in some]
        if table.name == EvaluationRecord.__tablename__:
            values = [row | {"subject": run.name} for row in values]
        insert_checked(session, table, values)


def batched_rows(rows: Iterable[object]) -> Iterator[list[object]]:
    """As many rows at a time as are entered together."""
    left = iter(rows)
    return iter(lambda: list(islice(left, ROWS_AT_ONCE)), [])


def insert_checked(session: Session, table: Table, values: list[dict[str, Any]]) -> None:
    """Enter rows whose values may come from anybody.

    Raises:
        UserError: they cannot be packed, or a key is there twice or missing.
    """
    try:
        session.execute(insert(table), values)
    except OperationalError:
        raise  # a full disk, a locked store: no fault of the rows
    except (SQLAlchemyError, TypeError, ValueError, OverflowError, IndexError, struct.error) as error:
        raise UserError(f"Rows of {table.name} cannot be entered; the file is damaged.") from error
