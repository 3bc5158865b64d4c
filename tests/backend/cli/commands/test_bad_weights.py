"""Bad weights of a language model: no command uses them, and doctor names them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from fastapi.testclient import TestClient
from safetensors.torch import load_file, save_file

from mxd.backend.api.app import create_app
from mxd.backend.cli.commands import doctor
from mxd.backend.cli.main import run
from mxd.backend.settings import Settings
from tests.helpers.runs import World

NAME = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture
def weights_file(fitted: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Weights of the language model of a copy of the run ``small``, in the default data folder."""
    shutil.copytree(fitted.data, tmp_path / "data")
    settings = tmp_path / "data" / "runs" / "small" / "run.json"
    source = json.loads(settings.read_text())["language_model"]
    shutil.copytree(source, tmp_path / "language-model")
    settings.write_text(settings.read_text().replace(source, str(tmp_path / "language-model")))
    monkeypatch.setenv("MXD_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("MXD_PORT", "0")
    doctor._weights_problem.cache_clear()
    return tmp_path / "language-model" / "model.safetensors"


def test_bad_weights_are_neither_used_nor_called_good(weights_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = load_file(weights_file)
    weights[NAME][0, 0] = torch.nan
    save_file(weights, weights_file, {"format": "pt"})
    assert run(["route", "small", "the old fox", "--device", "cpu"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert NAME in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert run(["doctor", "--json"]) == 1
    found = {it["check"]: it for it in json.loads(capsys.readouterr().out)}["run small"]
    assert (found["verdict"], NAME in found["state"]) == ("bad", True)
    with TestClient(create_app(Settings(device="cpu"))) as client:
        answer = client.post("/api/runs/small/routing", json={"text": "the old fox"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "run-unusable")
    assert NAME in answer.json()["error"]["message"]


def test_large_weights_are_not_read(
    weights_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "LARGEST_READ", weights_file.stat().st_size - 1)
    assert run(["doctor", "--json"]) == 0
    found = {it["check"]: it for it in json.loads(capsys.readouterr().out)}["run small"]
    assert (found["verdict"], "weights not read" in found["state"]) == ("good", True)
