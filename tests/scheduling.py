"""Which tests one of several workers runs together, and which begin first.

xdist's own way of grouping, a mark, has no effect since pytest 9.2: the group no longer gets into the test's id.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

BROWSER = "tests/browser"
"""One group: its files share a server."""
LONG = (
    BROWSER,
    "tests/test_end_to_end.py",
    "tests/trainer/test_distributed.py",
    "tests/test_examples.py",
    "tests/test_notebooks.py",
    "tests/test_wheel.py",
    "tests/trainer/layers/test_sharded.py",
    "tests/backend/test_faults.py",
    "tests/test_site.py",
)
"""Groups that take longest. What begins last should be short, or one worker works on while the others are done."""


def group_of(nodeid: str) -> str:
    """What is run together with this test: its file, for the fixtures of it."""
    file = nodeid.partition("::")[0]
    return BROWSER if file.startswith(f"{BROWSER}/") else file


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Give each worker a whole group at a time, the long ones first and the others as they were collected."""

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
