"""Browsing of features that another program wrote."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fastapi.testclient import TestClient

from mxd.backend.api.app import create_app
from mxd.backend.cli.main import run as mxd
from mxd.backend.settings import Settings

NAME = "theirs"


@dataclass(frozen=True)
class Browsed:
    """Imported features, as the API shows them."""

    experts: int
    """Number of experts, dead ones included."""
    examples: int
    labels: int
    """Number of labels on the first page of experts."""


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
