"""A run that comes as a folder is entered into another database as it was in its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.open import open_trainer_database, sqlite_url
from mxd.trainer.storage.database.tables import RunRecord
from mxd.trainer.storage.run import METRICS_FILE, Run
from mxd.trainer.storage.run_records import metrics_of, register_run
from mxd.trainer.training.train import train_layer
from tests.helpers.runs import World


@pytest.fixture
def run(world: World) -> Run:
    train_layer(world.config(), world.data, world.database, world.language_model)
    return Run.load("small", world.data)


def columns(database: Engine, run: Run) -> dict[str, object]:
    with Session(database) as session:
        record = session.scalars(select(RunRecord).where(RunRecord.name == run.name)).one()
        left_out = {"id", "started_at", "updated_at"}
        return {c.name: getattr(record, c.name) for c in RunRecord.__table__.columns if c.name not in left_out}


def test_a_run_registered_in_another_database_has_the_same_record(world: World, run: Run, tmp_path: Path) -> None:
    other = open_trainer_database(sqlite_url(tmp_path / "elsewhere"))
    for _ in range(2):  # the second time it is left as it is
        register_run(run, other)
    assert columns(other, run) == columns(world.database, run)
    assert metrics_of(other, 1) == metrics_of(world.database, 1)
    other.dispose()


def test_missing_and_damaged_metrics_are_ignored(run: Run, tmp_path: Path) -> None:
    other = open_trainer_database(sqlite_url(tmp_path / "elsewhere"))
    (run.folder / METRICS_FILE).write_text('[{"step": 1}]')
    with pytest.raises(UserError, match="Invalid metrics"):
        register_run(run, other)
    (run.folder / METRICS_FILE).unlink()
    register_run(run, other)
    assert metrics_of(other, 1) == []
    other.dispose()
