"""Settings for every test: one thread, no Hub access, and no time limit per Hypothesis example."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from xdist.remote import Producer

from tests.helpers.fuzzing import WANTED
from tests.helpers.scheduling import ByFile
from tests.helpers.servers.postgresql import Server, postgresql

# huggingface_hub reads it at import, so a fixture would be too late.
os.environ["HF_HUB_OFFLINE"] = "1"
# Host name of Starlette's test client.
os.environ["MXD_ALLOWED_HOSTS"] = "testserver"
# Triton reads it when a kernel is defined: without a GPU, kernels run in its interpreter.
os.environ["TRITON_INTERPRET"] = "1"
# One thread per worker, here and in child processes, because there are as many workers as cores.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1"))

import mxd.trainer.experimental  # noqa: F401  registers its methods, as the programs do

settings.register_profile("unhurried", deadline=None, max_examples=int(WANTED or 40))
settings.load_profile("unhurried")


@pytest.fixture(scope="session", autouse=True)
def _nothing_has_to_reach_the_disk() -> Iterator[None]:
    """Tests kill processes, not the power of the machine, and a training waits for the disk forty times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _file: None)
        yield


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Server]:
    with postgresql() as server:
        yield server


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    """Distribute whole files over the workers: tests of a file share fixtures, browser tests share a server."""
    return ByFile(config, log)
