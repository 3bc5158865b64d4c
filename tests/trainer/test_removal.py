"""Removing a run leaves nothing of it and everything of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from tests.runs import World
from trainer.config import IndexConfig
from trainer.errors import NotFoundError, UserError
from trainer.files import only_one
from trainer.indexing import build_index
from trainer.removal import remove_run
from trainer.run import LOCK_FILE, Run, run_names
from trainer.train import train

TABLES = ("runs", "metrics", "indexes", "experts", "sequences", "contexts", "context_text")


def rows(world: World) -> dict[str, int]:
    """Rows of each table."""
    with world.store.connect() as connection:
        return {name: connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one() for name in TABLES}


def fit(world: World, name: str) -> None:
    """A fitted and indexed run."""
    train(world.config(name), world.data, world.store, world.language_model)
    config = IndexConfig(text=world.text, tokens=500)
    build_index(Run.load(name, world.data), config, world.language_model, world.store)


def test_nothing_of_it_stays_and_everything_of_the_others(world: World) -> None:
    fit(world, "kept")
    before = rows(world)
    fit(world, "gone")
    remove_run("gone", world.data, world.store)
    assert rows(world) == before
    assert run_names(world.data) == ["kept"]


def test_one_that_only_the_store_knows_goes_too(world: World, tmp_path: Path) -> None:
    fit(world, "gone")
    remove_run("gone", tmp_path / "elsewhere", world.store)
    assert set(rows(world).values()) == {0}
    with pytest.raises(NotFoundError, match="There is no run gone"):
        remove_run("gone", tmp_path / "elsewhere", world.store)


def test_one_that_is_being_fitted_stays(world: World) -> None:
    fit(world, "busy")
    before = rows(world)
    lock = world.data / "runs" / "busy" / LOCK_FILE
    with only_one(lock, "x"), pytest.raises(UserError, match="The run busy is being fitted"):
        remove_run("busy", world.data, world.store)
    assert rows(world) == before
