"""What holds for every test: one thread, no hub, and no time limit per example on a machine that others use too."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from tests.postgresql import Server, postgresql

# Read when huggingface_hub is first imported, hence here and not in a fixture.
os.environ["HF_HUB_OFFLINE"] = "1"
# The name under which Starlette's test client asks.
os.environ["MXD_ALLOWED_HOSTS"] = "testserver"
# Read when a Triton kernel is first named: without a GPU they run in its interpreter.
os.environ["TRITON_INTERPRET"] = "1"
torch.set_num_threads(1)
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Server]:
    """A PostgreSQL server."""
    with postgresql() as server:
        yield server


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several workers a file's tests stay together, for its fixtures, as do all in the browser, for its server."""
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        group = "browser" if item.get_closest_marker("browser") else item.path.name
        item.add_marker(pytest.mark.xdist_group(group))
