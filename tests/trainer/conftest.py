"""Fixtures of the trainer's tests."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import register_run
from tests.helpers.runs import World, small_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A small world of its own."""
    made = small_world(tmp_path)
    yield made
    made.database.dispose()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A small world that the tests of a file share; each has names of its own."""
    made = small_world(tmp_path_factory.mktemp("shared"))
    yield made
    made.database.dispose()


@pytest.fixture(scope="session")
def trained_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a trained run. Tests copy it."""
    made = small_world(tmp_path_factory.mktemp("trained"))
    folder = made.train().folder
    made.database.dispose()
    return folder


@pytest.fixture
def run(world: World, trained_folder: Path) -> Run:
    """The trained run ``small`` of the test's own world."""
    shutil.copytree(trained_folder, world.data / "runs" / "small")
    run = Run.load("small", world.data)
    register_run(run, world.database)
    return run
