"""Grouping of tests for the workers, and the order of the groups.

xdist's own grouping mark has no effect since pytest 9.2, because the group is no longer part of the test id.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

BROWSER = "tests/browser"
"""Browser tests form one group, because they share a server."""
LONG = (
    BROWSER,
    "tests/devices/test_devices.py",
    "tests/trainer/utils/test_distributed.py",
    "tests/test_benchmarks.py",
    "tests/trainer/language_model/test_architecture.py",
    "tests/backend/database/test_postgresql.py",
    "tests/scripts/test_build_demo.py",
    "tests/test_wheel.py",
    "tests/trainer/layers/test_ops.py",
    "tests/trainer/layers/test_base.py",
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
