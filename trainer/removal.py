"""Taking a run away, from its store and its data folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from sqlalchemy import Engine, delete, select

from trainer.errors import NotFoundError
from trainer.files import only_one
from trainer.run import LOCK_FILE, run_names, runs_folder
from trainer.store import MetricRecord, RunRecord, delete_index, writing


def remove_run(name: str, data: Path, store: Engine) -> None:
    """Delete a run: its index and metrics from the store, its folder from ``data``.

    Raises:
        NotFoundError: neither has a run of this name.
        UserError: it is being fitted.
    """
    if name not in run_names(data):
        if not _forget(name, store):
            raise NotFoundError(f"There is no run {name} in the store or under {runs_folder(data)}.")
        return
    folder = runs_folder(data) / name
    with only_one(folder / LOCK_FILE, f"The run {name} is being fitted"):
        _forget(name, store)
        shutil.rmtree(folder)


def _forget(name: str, store: Engine) -> bool:
    """Delete a run from the store; whether it was there."""
    with writing(store) as session:
        record = session.scalar(select(RunRecord).where(RunRecord.name == name))
        if record is None:
            return False
        delete_index(session, record.id)
        session.execute(delete(MetricRecord).where(MetricRecord.run_id == record.id))
        session.delete(record)
        return True
