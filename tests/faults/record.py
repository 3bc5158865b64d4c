"""Plugin of pytest that counts cases and failures, and writes them to the file that ATTACKS_RECORD names."""

import json
import os
from pathlib import Path

import pytest

from tests.helpers.fuzzing import CASES

TOTALS = {"cases": 0, "failures": 0, "slowest_seconds": 0.0}


def pytest_runtest_setup() -> None:
    """Count the cases of each test alone."""
    CASES.reset()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add a test, or an error in its fixtures. A test that counts no cases is one case."""
    TOTALS["failures"] += report.failed
    if report.when == "call":
        TOTALS["cases"] += CASES.count or 1
        slowest = CASES.slowest if CASES.count else report.duration
        TOTALS["slowest_seconds"] = max(TOTALS["slowest_seconds"], slowest)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that cannot be read is a failure."""
    TOTALS["failures"] += report.failed


def pytest_sessionfinish() -> None:
    """Write the totals."""
    Path(os.environ["ATTACKS_RECORD"]).write_text(json.dumps(TOTALS))
