"""A data folder that may not be written can be browsed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from mxd.backend.api.app import create_app
from mxd.backend.settings import Settings


def test_a_read_only_data_folder_can_be_browsed(made_up: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = shutil.copytree(made_up, tmp_path / "data")
    before = {path.name: path.read_bytes() for path in data.glob("mxd.sqlite*") if path.suffix == ".sqlite"}

    def no_write(_path: object, mode: int, **_more: Any) -> bool:
        return mode != os.W_OK

    monkeypatch.setattr(os, "access", no_write)  # root may write everywhere
    with TestClient(create_app(Settings(data=data, frontend=data / "dist"))) as client:
        for path in ("/api/runs", "/api/runs/first/experts", "/api/runs/first/experts/1/examples", "/api/health"):
            assert client.get(path).status_code == 200, path
        answer = client.patch("/api/runs/first/experts/1", json={"label": "x"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "database-unavailable")
        assert "read-only" in answer.json()["error"]["message"]
    assert {path.name: path.read_bytes() for path in data.glob("mxd.sqlite*")} == before
