"""The interoperability suite runs only through ``make interop``: it installs the packages that it tests against."""

import os
from pathlib import Path
from typing import NamedTuple

import pytest
from fastapi.testclient import TestClient

from mxd.backend.api.app import create_app
from mxd.backend.cli.main import run as mxd
from mxd.backend.settings import Settings
from tests.interop.environments import CACHE, demo_copy

collect_ignore_glob = [] if "INTEROP" in os.environ else ["test_*.py"]
TABLE = CACHE / "table.md"
PACKAGES = {"saelens": "sae-lens", "sparsify": "eai-sparsify", "circuit-tracer": "circuit-tracer (a fork)"}
MXD, TRANSCODER = "smollm2-l10", "smollm2-l10-transcoder"
"""Runs of the demo whose layers are exported."""
TOLERANCE = 1e-6
"""Largest difference between outputs, relative to the largest output. Float32 resolves 1.2e-7."""


def add_row(oracle: str, version: str, checked: str, result: str) -> None:
    """Add a row to the table in docs/interop.md, in ``.interop/table.md``. Several processes do so."""
    with TABLE.open("a", encoding="utf-8") as file:
        file.write(f"| {oracle} | {version} | {checked} | {result} |\n")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Begin a new table, in the process that starts the others."""
    if "INTEROP" in os.environ and not hasattr(session.config, "workerinput"):
        TABLE.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def demo() -> Path:
    return demo_copy()


NAME = "theirs"


class Browsed(NamedTuple):
    """Numbers of imported features, dead ones included, of their examples, and of labels on the first page."""

    experts: int
    examples: int
    labels: int


def browse(folder: Path, data: Path) -> Browsed:
    """Import a folder as a run without weights, and open its experts and the page of the first one."""
    assert mxd(["import", str(folder), "--what", "features", "--name", NAME, "--data", str(data)]) == 0
    with TestClient(create_app(Settings(data=data))) as client:
        listed = client.get(f"/api/runs/{NAME}/experts").json()
        first = listed["experts"][0]
        detail = client.get(f"/api/runs/{NAME}/experts/{first['expert']}")
        assert detail.status_code == 200, detail.text
        examples = client.get("/api/health").json()["examples"]
    return Browsed(listed["matching"], examples, sum(row["automatic"] is not None for row in listed["experts"]))
