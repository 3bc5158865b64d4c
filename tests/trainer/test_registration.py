"""A run that comes as a folder is entered into another store as it was in its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from tests.runs import World
from trainer.errors import UserError
from trainer.registration import metrics_of, register_run
from trainer.run import METRICS_FILE, Run
from trainer.store import (
    RunRecord,
    open_store,
    sqlite_url,
)
from trainer.train import train


@pytest.fixture
def run(world: World) -> Run:
    train(world.config(), world.data, world.store, world.language_model)
    return Run.load("small", world.data)


def columns(store: Engine, run: Run) -> dict[str, object]:
    with Session(store) as session:
        record = session.scalars(select(RunRecord).where(RunRecord.name == run.name)).one()
        left_out = {"id", "started_at", "updated_at"}
        return {c.name: getattr(record, c.name) for c in RunRecord.__table__.columns if c.name not in left_out}


def test_registered_elsewhere_it_is_the_same(world: World, run: Run, tmp_path: Path) -> None:
    other = open_store(sqlite_url(tmp_path / "elsewhere"))
    for _ in range(2):  # the second time it is left as it is
        register_run(run, other)
    assert columns(other, run) == columns(world.store, run)
    assert metrics_of(other, 1) == metrics_of(world.store, 1)
    other.dispose()


def test_without_metrics_and_with_damaged_ones(run: Run, tmp_path: Path) -> None:
    other = open_store(sqlite_url(tmp_path / "elsewhere"))
    (run.folder / METRICS_FILE).write_text('[{"step": 1}]')
    with pytest.raises(UserError, match="damaged"):
        register_run(run, other)
    (run.folder / METRICS_FILE).unlink()
    register_run(run, other)
    assert metrics_of(other, 1) == []
    other.dispose()
