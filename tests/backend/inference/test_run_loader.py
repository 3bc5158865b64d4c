"""The cache of loaded runs, and similar experts."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient

from mxd.backend.errors import RunNotFoundError
from mxd.backend.inference import run_loader
from mxd.backend.inference.run_loader import RunLoader
from mxd.trainer.utils import devices
from mxd.trainer.utils.devices import DeviceMemory
from tests.helpers.runs import World


def test_a_run_is_cached_until_its_files_change(fitted: World, tmp_path: Path) -> None:
    shutil.copytree(fitted.data, tmp_path / "data")
    library = RunLoader(tmp_path / "data", capacity=2)
    first = library.run("small")
    assert library.run("small") is first
    (tmp_path / "data" / "runs" / "small" / "layer.safetensors").touch()
    assert library.run("small") is not first


def test_the_least_recently_used_run_is_evicted(made_up: Path) -> None:
    library = RunLoader(made_up, capacity=1)
    first = library.run("first")
    library.run("second")
    assert library.run("first") is not first


def test_runs_are_evicted_by_the_memory_of_the_device(made_up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_loader, "SMALL_BYTES", 0)
    monkeypatch.setattr(devices, "accelerator", lambda: torch.device("cuda"))
    library = RunLoader(made_up, capacity=8)
    first = library.run("first")
    for total, is_kept in ((400, True), (399, False)):  # a quarter holds both runs of 50 bytes, or not
        monkeypatch.setattr(devices, "device_memory", lambda _device, total=total: DeviceMemory(total, total))
        for loaded in (first, library.run("second")):
            loaded.weight_bytes = 50
        assert (library.run("first") is first) is is_kept


def test_only_runs_of_the_data_folder_are_loaded(
    fitted: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("small", "other"):
        shutil.copytree(fitted.data / "runs" / "small", tmp_path / name)
    monkeypatch.chdir(tmp_path)
    loader = RunLoader(fitted.data, capacity=1)
    assert loader.run("small").run.folder == fitted.data / "runs" / "small"
    with pytest.raises(RunNotFoundError):
        loader.run("other")


@pytest.mark.parametrize("by", ["gate", "output"])
def test_similar_experts_are_those_with_the_largest_cosine(live_client: TestClient, fitted: World, by: str) -> None:
    layer = RunLoader(fitted.data, 1).run("small").run.layer
    rows_ND = layer.get_parameter("gate.weight") if by == "gate" else layer.get_parameter("scaling_NO")
    cosines_N = torch.nn.functional.cosine_similarity(rows_ND, rows_ND[7].unsqueeze(0)).detach()
    cosines_N[7] = -2
    best = cosines_N.topk(5)
    answer = live_client.get("/api/runs/small/experts/7/similar", params={"by": by, "limit": 5}).json()
    assert [expert["expert"] for expert in answer["experts"]] == best.indices.tolist()
    assert [expert["similarity"] for expert in answer["experts"]] == pytest.approx(best.values.tolist(), abs=1e-5)
    others_N = np.delete(cosines_N.numpy(), 7)
    assert answer["p95"] == pytest.approx(np.percentile(others_N, 95), abs=1e-5)
