"""One run with everything that a bundle can hold, packed once."""

from pathlib import Path

import pytest

from tests.helpers.formats.bundles import Entries, entries_of, full_world, packed
from tests.helpers.runs import World


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return full_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def bundle(world: World) -> Path:
    return packed(world, world.data.parent / "small.mxd")


@pytest.fixture(scope="session")
def entries(bundle: Path) -> Entries:
    return entries_of(bundle)
