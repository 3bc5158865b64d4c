"""Removing a run: all of it goes, and nothing else."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from tests.runs import World
from trainer.config import IndexConfig
from trainer.errors import NotFoundError, UserError
from trainer.files import only_one
from trainer.indexing import build_index
from trainer.removal import remove_run
from trainer.run import Run
from trainer.store import ContextRecord, ExpertRecord, IndexRecord, RunRecord, SequenceRecord
from trainer.train import train


@pytest.fixture
def run(world: World) -> Run:
    train(world.config(), world.data, world.store, world.language_model)
    return Run.load("small", world.data)


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
        assert session.scalar(text("SELECT count(*) FROM sqlite_master WHERE name LIKE 'search_%'")) == 0
    with pytest.raises(NotFoundError, match="no run small"):
        remove_run("small", world.data, world.store)


def test_a_run_that_is_being_fitted_is_not_removed(world: World, run: Run) -> None:
    with only_one(run.lock, "held"), pytest.raises(UserError, match="being fitted"):
        remove_run("small", world.data, world.store)
    assert run.folder.exists()
