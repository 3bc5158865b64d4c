"""A run that comes as a folder is entered into another store as it was in its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine, func, select, text
from sqlalchemy.orm import Session

from tests.runs import World
from trainer.config import IndexConfig
from trainer.errors import NotFoundError, UserError
from trainer.files import only_one
from trainer.indexing import build_index
from trainer.registration import METRICS_FILE, metrics_of, register_run, remove_run
from trainer.run import Run
from trainer.store import (
    SEARCH_TABLE,
    ContextRecord,
    ExpertRecord,
    IndexRecord,
    RunRecord,
    SequenceRecord,
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


def test_removed_it_leaves_nothing(world: World, run: Run) -> None:
    config = IndexConfig(text=world.text, tokens=160, top=2)
    build_index(run, config, world.language_model, world.store)
    train(world.config("other"), world.data, world.store, world.language_model)
    remove_run("small", world.data, world.store)
    assert not run.folder.exists()
    with Session(world.store) as session:
        assert session.scalars(select(RunRecord.name)).all() == ["other"]
        for table in (ExpertRecord, ContextRecord, SequenceRecord, IndexRecord):
            assert session.scalar(select(func.count()).select_from(table)) == 0
        assert session.scalar(text(f"SELECT count(*) FROM {SEARCH_TABLE}")) == 0
    with pytest.raises(NotFoundError, match="no run small"):
        remove_run("small", world.data, world.store)


def test_a_run_that_is_being_fitted_is_not_removed(world: World, run: Run) -> None:
    with only_one(run.lock, "held"), pytest.raises(UserError, match="being fitted"):
        remove_run("small", world.data, world.store)
    assert run.folder.exists()
