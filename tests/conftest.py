"""What holds for every test: one thread, no hub, and no time limit per example on a machine that others use too."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from xdist.remote import Producer

from tests.fuzzing import WANTED
from tests.postgresql import Server, postgresql
from tests.scheduling import ByFile

# Read when huggingface_hub is first imported, hence here and not in a fixture.
os.environ["HF_HUB_OFFLINE"] = "1"
# The name under which Starlette's test client asks.
os.environ["MXD_ALLOWED_HOSTS"] = "testserver"
# Read when a Triton kernel is first named: without a GPU they run in its interpreter.
os.environ["TRITON_INTERPRET"] = "1"
# Read when torch and the others are first imported, here and in processes that tests start: there are as many workers
# as cores already.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1"))
settings.register_profile("unhurried", deadline=None, max_examples=int(WANTED or 40))
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Server]:
    """A PostgreSQL server."""
    with postgresql() as server:
        yield server


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    """With several workers a file's tests stay together, for its fixtures, as do all in the browser, for its server."""
    return ByFile(config, log)
