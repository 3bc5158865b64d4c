"""The interoperability suite runs only through ``make interop``: it installs the packages that it tests against."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.interop.environments import CACHE, Oracles, demo_copy

collect_ignore_glob = [] if "INTEROP" in os.environ else ["test_*.py"]
TABLE = CACHE / "table.md"
PACKAGES = {"saelens": "sae-lens", "sparsify": "eai-sparsify", "circuit-tracer": "circuit-tracer (a fork)"}
MXD, TRANSCODER = "smollm2-l10", "smollm2-l10-transcoder"
"""Runs of the demo whose layers are exported."""
TOLERANCE = 1e-6
"""Largest difference between outputs, relative to the largest output. Float32 resolves 1.2e-7."""


class Table:
    """Rows of the table in docs/interop.md, in ``.interop/table.md``. Several processes add to it."""

    def add(self, oracle: str, version: str, checked: str, result: str) -> None:
        with TABLE.open("a", encoding="utf-8") as file:
            file.write(f"| {oracle} | {version} | {checked} | {result} |\n")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Begin a new table, in the process that starts the others."""
    if "INTEROP" in os.environ and not hasattr(session.config, "workerinput"):
        TABLE.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def table() -> Table:
    return Table()


@pytest.fixture(scope="session")
def oracles() -> Oracles:
    return Oracles()


@pytest.fixture(scope="session")
def demo() -> Path:
    return demo_copy()
