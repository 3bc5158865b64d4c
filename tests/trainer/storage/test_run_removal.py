"""Removing a run: all of it goes, and nothing else."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from mxd.trainer.analysis.indexing.build import build_index
from mxd.trainer.config import IndexConfig
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import ExampleRecord, IndexRecord, RunRecord, SequenceRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import remove_run
from mxd.trainer.training.train import train_layer
from mxd.trainer.utils.files import exclusive_lock
from tests.helpers.runs import World


def test_removing_a_run_deletes_its_files_and_rows(world: World, run: Run) -> None:
    config = IndexConfig(text=world.text, tokens=160, top_examples=2)
    build_index(run, config, world.language_model, world.database)
    train_layer(world.config("other"), world.data, world.database, world.language_model)
    remove_run("small", world.data, world.database)
    assert not run.folder.exists()
    with Session(world.database) as session:
        assert session.scalars(select(RunRecord.name)).all() == ["other"]
        for table in (ExpertRecord, ExampleRecord, SequenceRecord, IndexRecord):
            assert session.scalar(select(func.count()).select_from(table)) == 0
        assert session.scalar(text("SELECT count(*) FROM sqlite_master WHERE name LIKE 'search_%'")) == 0
    with pytest.raises(NotFoundError, match="Unknown run 'small'"):
        remove_run("small", world.data, world.database)


def test_a_run_in_training_is_not_removed(world: World, run: Run) -> None:
    with exclusive_lock(run.lock, "held"), pytest.raises(UserError, match="being trained"):
        remove_run("small", world.data, world.database)
    assert run.folder.exists()
