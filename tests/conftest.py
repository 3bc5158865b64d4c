"""Settings for every test: one thread, no Hub access, no time limit per Hypothesis example; and their order.

xdist's own grouping mark has no effect since pytest 9.2, because the group is no longer part of the test id.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.helpers.fuzzing import WANTED
from tests.helpers.servers.postgresql import Server, postgresql

# huggingface_hub reads it at import, so a fixture would be too late.
os.environ["HF_HUB_OFFLINE"] = "1"
# Host name of Starlette's test client.
os.environ["MXD_ALLOWED_HOSTS"] = "testserver"
# Triton reads it when a kernel is defined: without a GPU, kernels run in its interpreter.
os.environ["TRITON_INTERPRET"] = "1"
# One thread per worker, here and in child processes, because there are at least as many workers as cores.
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


BROWSER = "tests/browser"
"""Browser tests form one group, because they share a server."""
LONG = (
    BROWSER,
    "tests/devices/test_devices.py",
    "tests/trainer/utils/test_distributed.py",
    "tests/test_benchmarks.py",
    "tests/trainer/training/test_train.py",
    "tests/trainer/language_model/test_architecture.py",
    "tests/backend/database/test_postgresql.py",
    "tests/scripts/test_build_demo.py",
    "tests/test_structure.py",
    "tests/trainer/layers/test_ops.py",
    "tests/trainer/layers/test_registry.py",
    "tests/backend/cli/commands/test_evaluate.py",
    "tests/test_docs.py",
)
"""Slowest groups. They start first, so that no worker runs alone at the end."""


def group_of(nodeid: str) -> str:
    """Group of a test: its file, whose fixtures it shares."""
    file = nodeid.partition("::")[0]
    return BROWSER if file.startswith(f"{BROWSER}/") else file


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Assign whole groups to workers, slow ones first, the others in collection order."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        config.option.loadscopereorder = False  # by the number of tests, which says little about their time
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        for group in reversed(LONG):
            if group in self.workqueue:
                self.workqueue.move_to_end(group, last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    """Distribute whole files over the workers: tests of a file share fixtures, browser tests share a server."""
    return ByFile(config, log)
