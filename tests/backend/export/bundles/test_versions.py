"""Bundles of other versions of the program, whose rows have fewer, more or renamed fields."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from mxd.backend.api.app import create_app
from mxd.backend.export.bundles.unpack import unpack
from mxd.backend.settings import Settings
from tests.helpers.formats.bundles import Entries, write_bundle

EVALUATIONS = "database/evaluations.jsonl"
EXAMPLES = "database/examples.jsonl"
EXPERTS = "database/experts.jsonl"


@pytest.mark.parametrize("fields", [{"jacobian": ...}, {"jacobian": None}, {"later": {"value": 1.0}}], ids=str)
def test_evaluations_of_other_versions_are_shown(fields: dict[str, Any], entries: Entries, tmp_path: Path) -> None:
    row = json.loads(entries[EVALUATIONS].splitlines()[0])
    assert row["result"]["jacobian"] is not None
    row["result"] = {name: value for name, value in (row["result"] | fields).items() if value is not ...}
    file = write_bundle(tmp_path / "other.mxd", entries | {EVALUATIONS: json.dumps(row).encode()})
    opened = unpack(file, tmp_path / "opened", None)
    with TestClient(create_app(Settings(data=opened.folder, device="cpu"))) as client:
        shown = client.get("/api/runs/small/report")
        assert shown.status_code == 200
        assert ("Jacobian" in shown.text) == ("jacobian" not in fields)


def test_examples_and_experts_of_earlier_versions_are_read(entries: Entries, tmp_path: Path) -> None:
    def rewritten(name: str, change: Callable[[dict[str, Any]], object]) -> bytes:
        rows = [json.loads(line) for line in entries[name].splitlines()]
        for row in rows:
            change(row)
        return b"".join(json.dumps(row).encode() + b"\n" for row in rows)

    earlier = {
        EXAMPLES: rewritten(EXAMPLES, lambda row: row.update(coefficient=row.pop("activation"))),
        EXPERTS: rewritten(EXPERTS, lambda row: row.pop("steerability")),
    }
    pages = []
    for place, changed in (("now", {}), ("earlier", earlier)):
        opened = unpack(write_bundle(tmp_path / f"{place}.mxd", entries | changed), tmp_path / place, None)
        with TestClient(create_app(Settings(data=opened.folder, device="cpu"))) as client:
            experts = client.get("/api/runs/small/experts?sort=density&order=desc&limit=3").json()["experts"]
            examples = [client.get(f"/api/runs/small/experts/{it['expert']}/examples").json() for it in experts]
            pages.append(([{**it, "steerability": None} for it in experts], examples))
    assert pages[0] == pages[1]
