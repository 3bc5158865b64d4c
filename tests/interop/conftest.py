"""The interoperability suite runs only through ``make interop``: it installs the packages that it tests against."""

from __future__ import annotations

import os
from collections.abc import Iterator
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
    """Rows of the table in docs/interop.md."""

    def __init__(self) -> None:
        self.rows: list[str] = []

    def add(self, oracle: str, version: str, checked: str, result: str) -> None:
        """Add a row."""
        self.rows.append(f"| {oracle} | {version} | {checked} | {result} |")


@pytest.fixture(scope="session")
def table() -> Iterator[Table]:
    """Collects rows and writes them to ``.interop/table.md``."""
    table = Table()
    yield table
    CACHE.mkdir(exist_ok=True)
    TABLE.write_text("\n".join(table.rows) + "\n")


@pytest.fixture(scope="session")
def oracles() -> Oracles:
    """Environments with the packages to test against."""
    return Oracles()


@pytest.fixture(scope="session")
def demo() -> Path:
    """A copy of the demo as a data folder, with its database."""
    return demo_copy()
