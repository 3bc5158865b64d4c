"""Bundles of other versions of the program, whose evaluations have fewer or more fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from mxd.backend.api.app import create_app
from mxd.backend.export.bundles.unpack import unpack
from mxd.backend.settings import Settings
from tests.helpers.formats.bundles import Entries, write_bundle

EVALUATIONS = "database/evaluations.jsonl"


@pytest.mark.parametrize("fields", [{"jacobian": ...}, {"jacobian": None}, {"later": {"value": 1.0}}], ids=str)
def test_evaluations_of_other_versions_are_shown(fields: dict[str, Any], entries: Entries, tmp_path: Path) -> None:
    row = json.loads(entries[EVALUATIONS].splitlines()[0])
    assert row["result"]["jacobian"] is not None
    row["result"] = {name: value for name, value in (row["result"] | fields).items() if value is not ...}
    file = write_bundle(tmp_path / "other.mxd", entries | {EVALUATIONS: json.dumps(row).encode()})
    opened = unpack(file, tmp_path / "opened", None)
    with TestClient(create_app(Settings(data=opened.folder, device="cpu"))) as client:
        shown = client.get("/api/runs/small/evaluations")
        assert shown.status_code == 200
        assert ("Jacobian" in shown.text) == ("jacobian" not in fields)
