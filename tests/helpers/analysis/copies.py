"""A run with the experts of another run in permuted order, to test that comparisons recognise them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from typing import Any

import torch
from sqlalchemy import ColumnElement, Engine, insert, select
from sqlalchemy.orm import Session

from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import (
    Base,
    ExampleRecord,
    IndexRecord,
    MetricRecord,
    RunRecord,
    SequenceRecord,
)
from mxd.trainer.storage.run import RUN_FILE, Run, runs_folder


def permuted_copy(run: Run, name: str, order: Sequence[int], database: Engine) -> None:
    """Copy a run and its index; expert n of the copy is expert ``order[n]`` of the original."""
    folder = shutil.copytree(run.folder, runs_folder(run.folder.parent.parent) / name)
    settings = json.loads((folder / RUN_FILE).read_text("utf-8"))
    (folder / RUN_FILE).write_text(json.dumps({**settings, "name": name}), "utf-8")
    copy = Run.load(folder)
    with torch.no_grad():
        for table in copy.layer.expert_tables:
            rows = copy.layer.get_parameter(table)
            rows.copy_(rows[torch.tensor(order)].clone())
    copy.layer.save(folder)
    with Session(database) as session, session.begin():
        _copy_rows(session, run.name, name, order)


def _copy_rows(session: Session, name: str, new_name: str, order: Sequence[int]) -> None:
    run_id = session.scalars(select(RunRecord.id).where(RunRecord.name == name)).one()
    copied = RunRecord(**(_rows(session, RunRecord, RunRecord.id == run_id)[0] | {"id": None, "name": new_name}))
    session.add(copied)
    session.flush()
    places = {expert: place for place, expert in enumerate(order)}
    # As plain rows: a hundred thousand mapped objects take ten seconds.
    for table in (MetricRecord, IndexRecord, SequenceRecord, ExpertRecord, ExampleRecord):
        rows = _rows(session, table, table.run_id == run_id)
        for row in rows:
            row["run_id"] = copied.id
            if "expert" in row:
                row["expert"] = places[row["expert"]]
        if rows:
            session.execute(insert(table), rows)


def _rows(session: Session, table: type[Base], condition: ColumnElement[bool]) -> list[dict[str, Any]]:
    columns = [getattr(table, column.key) for column in table.__mapper__.column_attrs]
    return [dict(row) for row in session.execute(select(*columns).where(condition)).mappings()]
