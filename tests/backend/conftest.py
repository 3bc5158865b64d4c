"""Fixtures of the backend's tests: one store of made-up statistics, one real run, and servers on both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from backend.app import create_app
from backend.settings import Settings
from tests.backend.stores import made_up_store
from tests.language_models import saved_language_model
from tests.runs import World, small_world
from trainer.config import IndexConfig
from trainer.indexing import build_index
from trainer.language_model import LanguageModel
from trainer.run import Run
from trainer.train import train


@pytest.fixture(scope="session")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Data folder with the made-up store. Tests only read it."""
    data = tmp_path_factory.mktemp("made-up")
    made_up_store(data).dispose()
    yield data


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Engine]:
    """A made-up store of the test's own, under ``tmp_path``."""
    engine = made_up_store(tmp_path)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def client(made_up: Path) -> Iterator[TestClient]:
    """A client of a server on the made-up store."""
    with TestClient(create_app(Settings(data=made_up, frontend=made_up / "dist"))) as it:
        yield it


@pytest.fixture
def own_client(own: Engine, tmp_path: Path) -> Iterator[TestClient]:
    """A client of a server on a store of the test's own."""
    with TestClient(create_app(Settings(data=tmp_path, frontend=tmp_path / "dist"))) as it:
        yield it


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world with the fitted and indexed run ``small`` of a language model on disk. Tests only read it."""
    folder = tmp_path_factory.mktemp("fitted")
    world = small_world(folder)
    source = str(saved_language_model(folder / "language-model"))
    language_model = LanguageModel.load(source, "cpu")
    train(world.config(language_model=source), world.data, world.store, language_model)
    config = IndexConfig(text=world.text, tokens=2_000)
    build_index(Run.load("small", world.data), config, language_model, world.store)
    yield world
    world.store.dispose()


@pytest.fixture(scope="session")
def live_client(fitted: World) -> Iterator[TestClient]:
    """A client of a server on the fitted run."""
    with TestClient(create_app(Settings(data=fitted.data, frontend=fitted.data / "dist", device="cpu"))) as it:
        yield it
