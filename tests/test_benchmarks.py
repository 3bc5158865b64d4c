"""Every benchmark runs at a small size: they are run rarely, and then by others, on machines that are lent."""

import json
import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from benchmarks.__main__ import main
from benchmarks.backend.browse import paths_of
from benchmarks.backend.database import RUN, Sizes, write_database
from benchmarks.commands.bench_gpu import SECTIONS, all_sections
from benchmarks.gpu.sections import REPORT_FILE, Setting, here, run_sections
from benchmarks.trainer import generate, index, train
from benchmarks.trainer.evaluate import bench_evaluate
from benchmarks.trainer.sizes import Sizes as TrainingSizes
from mxd.backend.api.app import create_app
from mxd.backend.settings import Settings
from mxd.trainer.config.analysis import EvaluateConfig
from mxd.trainer.storage.database.open import sqlite_url
from tests.helpers.runs import CONFIGS, byte_tokenizer, run_of, small_world


def test_every_section_of_the_gpu_run(tmp_path: Path) -> None:
    sections = [all_sections()[name] for name in SECTIONS]
    outcomes = run_sections(sections, Setting("cpu", True, tmp_path), time.time() + 600, {}, here, lambda _line: None)
    assert {name: outcome.error for name, outcome in outcomes.items()} == dict.fromkeys(SECTIONS)
    assert outcomes["smoke"].points[-1]["routed"] > 3
    assert all(point["is_correct"] for point in outcomes["kernels"].points)
    assert all(point["equals_eager"] for point in outcomes["layer"].points[1:])
    assert json.loads((tmp_path / REPORT_FILE).read_text("utf-8"))["sections"].keys() == set(SECTIONS)


def test_layers_and_blocks(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mxd.trainer.training.rates.SECONDS_EACH", 0.0)
    sizes = "--width 8 --hidden-width 12 --num-experts 30,40 --k 4 --tokens 16 --rounds 1 --device cpu --json"
    assert main(["layer", *sizes.split()]) == 0
    assert all(point["gradient_error"] < 1e-4 for point in json.loads(capsys.readouterr().out)["points"])
    CONFIGS["llama"].save_pretrained(tmp_path)
    sizes = "--blocks 1,2 --num-experts 20 --k 4 --tokens 64 --batch 32 --context 16 --parts step --rounds 1"
    assert main(["large", str(tmp_path), *sizes.split(), "--device", "cpu"]) == 0
    assert "step, N 20" in capsys.readouterr().out


def test_training_indexing_evaluating_and_generating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    byte_tokenizer().save_pretrained(tmp_path / "tokenizer")
    sizes = [TrainingSizes(width=64, layers=2, num_experts=20, k=4, context=32)]
    for module in (train, index):
        monkeypatch.setattr(module, "peak_bytes", lambda work, *given: 1)
    assert train.bench_train(tmp_path / "tokenizer", sizes, [256], batch=64, rounds=1, device="cpu").efficiency > 0
    (point,) = index.bench_index(tmp_path / "tokenizer", sizes, [256], rounds=1, device="cpu").points
    assert point.efficiency > 0
    world = small_world(tmp_path)
    run = run_of(world)
    (cost,) = bench_evaluate(world.language_model, [run], EvaluateConfig(text=world.text, tokens=256), rounds=1).points
    assert cost.interventions_ratio > 0 and cost.full_ratio > 0
    monkeypatch.setattr(generate, "ROUTED_TOKENS", 40)
    assert generate.bench_generate(world.language_model, run, tokens=3, rounds=1).pair_speedup > 0
    world.database.dispose()


def test_every_query_of_browsing_is_answered(tmp_path: Path) -> None:
    byte_tokenizer().save_pretrained(tmp_path / "tokenizer")
    sizes = Sizes(experts=60, examples=9)
    write_database(tmp_path / "data", sqlite_url(tmp_path / "data"), tmp_path / "tokenizer", sizes)
    with TestClient(create_app(Settings(data=tmp_path / "data"))) as client:
        assert client.get(f"/api/runs/{RUN}/experts").json()["matching"] == 60
        for name, path in paths_of(lambda path: client.get(path).content, sizes).items():
            assert client.get(path(0)).status_code == 200, name
