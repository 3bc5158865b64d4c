"""Fixtures of the backend's tests: one database of made-up statistics, one real run, and servers on both."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, make_url

from mxd.backend.api.app import create_app
from mxd.backend.cli.main import run as mxd
from mxd.backend.database.engine import opened
from mxd.backend.settings import Settings
from mxd.trainer.storage.database.open import sqlite_url
from tests.helpers.databases import made_up_database
from tests.helpers.runs import World, indexed_world
from tests.helpers.servers.postgresql import Server

IN_BOTH = ("annotations", "experts", "search")
"""Files of tests that run on a database in SQLite and on one in PostgreSQL; all others on SQLite alone."""
CopyMadeUp = Callable[[Path], str]
"""Copies the data folder of a made-up database to a folder; returns the URL of the copy."""


def events(stream: str) -> list[dict[str, Any]]:
    """Data of the events of an event stream."""
    return [json.loads(line.removeprefix("data: ")) for line in stream.splitlines() if line.startswith("data: ")]


def printed(command: str, *words: str) -> Any:
    """JSON that a command prints in one line."""
    with redirect_stdout(StringIO()) as out:
        assert mxd([command, "--json", *words]) == 0
    (line,) = out.getvalue().removesuffix("\n").split("\n")
    return json.loads(line)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of ``IN_BOTH`` once a database."""
    if "copy_made_up" in metafunc.fixturenames and metafunc.module.__name__.rpartition("test_")[2] in IN_BOTH:
        metafunc.parametrize("copy_made_up", ["sqlite", "postgresql"], indirect=True, scope="session")


@pytest.fixture(scope="session")
def copy_made_up(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> CopyMadeUp:
    """Copies a made-up database, ten times faster than creating one."""
    in_sqlite = getattr(request, "param", "sqlite") == "sqlite"
    server: Server | None = None if in_sqlite else request.getfixturevalue("postgresql_server")
    data = tmp_path_factory.mktemp("template")
    url = server.new() if server else sqlite_url(data)
    made_up_database(data, url).dispose()

    def copied(folder: Path) -> str:
        shutil.copytree(data, folder, dirs_exist_ok=True)
        return server.new(template=make_url(url).database or "") if server else sqlite_url(folder)

    return copied


@pytest.fixture(scope="session")
def made_up_place(tmp_path_factory: pytest.TempPathFactory, copy_made_up: CopyMadeUp) -> tuple[Path, str]:
    """Data folder and URL of the made-up database. Tests only read it."""
    data = tmp_path_factory.mktemp("made-up")
    return data, copy_made_up(data)


@pytest.fixture(scope="session")
def made_up(made_up_place: tuple[Path, str]) -> Path:
    """Data folder of the made-up database."""
    return made_up_place[0]


@pytest.fixture
def own(tmp_path: Path, copy_made_up: CopyMadeUp) -> Iterator[Engine]:
    """A made-up database of the test's own, its data folder under ``tmp_path``."""
    with opened(copy_made_up(tmp_path)) as engine:
        yield engine


@pytest.fixture(scope="session")
def client(made_up_place: tuple[Path, str]) -> Iterator[TestClient]:
    """A client of a server on the made-up database."""
    data, url = made_up_place
    with TestClient(create_app(Settings(data=data, database=url, frontend=data / "dist"))) as it:
        yield it


@pytest.fixture
def own_settings(own: Engine, tmp_path: Path) -> Settings:
    url = own.url.render_as_string(hide_password=False)
    return Settings(data=tmp_path, database=url, frontend=tmp_path / "dist")


@pytest.fixture
def own_client(own_settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(own_settings)) as it:
        yield it


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world with the fitted and indexed run ``small`` of a language model on disk. Tests only read it."""
    world = indexed_world(tmp_path_factory.mktemp("fitted"))
    yield world
    world.database.dispose()


@pytest.fixture(scope="session")
def live_client(fitted: World) -> Iterator[TestClient]:
    with TestClient(create_app(Settings(data=fitted.data, frontend=fitted.data / "dist", device="cpu"))) as it:
        yield it
