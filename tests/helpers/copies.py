"""A run with the experts of another run in permuted order, to test that comparisons recognise them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from typing import Any

import torch
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from mxd.trainer.storage.database.tables import (
    Base,
    ExampleRecord,
    ExpertRecord,
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
    record = session.scalars(select(RunRecord).where(RunRecord.name == name)).one()
    copied = RunRecord(**(_values(record) | {"id": None, "name": new_name}))
    session.add(copied)
    session.flush()
    places = {expert: place for place, expert in enumerate(order)}
    for table in (MetricRecord, IndexRecord, SequenceRecord):
        for row in session.scalars(select(table).where(table.run_id == record.id)):
            session.add(table(**(_values(row) | {"run_id": copied.id})))
    for of_experts in (ExpertRecord, ExampleRecord):
        for row in session.scalars(select(of_experts).where(of_experts.run_id == record.id)):
            values = _values(row)
            session.add(of_experts(**(values | {"run_id": copied.id, "expert": places[values["expert"]]})))


def _values(row: Base) -> dict[str, Any]:
    return {column.key: getattr(row, column.key) for column in type(row).__mapper__.column_attrs}
