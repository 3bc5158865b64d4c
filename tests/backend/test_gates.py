"""``mxd train --gate`` and ``mxd approximate``; the run says what its gate is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from backend.app import create_app
from backend.cli import run
from backend.settings import Settings
from tests.backend.test_cli import Capture, document
from tests.language_models import saved_language_model
from tests.runs import small_world
from trainer.config import IndexConfig, TextConfig
from trainer.indexing import build_index
from trainer.language_model import LanguageModel
from trainer.run import Run
from trainer.store import open_store, sqlite_url


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A command line that fits runs of 8 steps, in a folder where it can."""
    small_world(tmp_path).store.dispose()
    saved_language_model(tmp_path / "lm")
    monkeypatch.setenv("MXD_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    fixed = "train lm --layer 1 --text text.jsonl --context 16 --batch 64 --window 512 --tokens 512 --k 4"
    return [*fixed.split(), "--num-experts", "40"]


def test_several_gates_on_one_pass_of_which_one_has_groups(words: list[str], tmp_path: Path, capsys: Capture) -> None:
    words += ["--gate", "flat,product-key,two-level", "--groups", "5", "--name", "g"]
    assert run([*words, "--plan", "--json"]) == 0
    flat, keys, levels = document(capsys)["layers"]
    assert [it["gate"] for it in (flat, keys, levels)] == ["flat", "product-key", "two-level"]
    assert keys["step_flops_per_token"] < flat["step_flops_per_token"]
    assert keys["parameters"] < flat["parameters"] < levels["parameters"]
    assert run([*words, "--json"]) == 0
    assert [it["run"] for it in document(capsys)] == ["g-flat", "g-product-key", "g-two-level"]
    assert Run.load("g-two-level", tmp_path / "data").layer.config.gate.groups == 5
    with TestClient(create_app(Settings(data=tmp_path / "data"))) as client:
        said = {it["name"]: it["gate"] for it in client.get("/api/runs").json()["runs"]}
    assert said == {"g-flat": "flat", "g-product-key": "product-key", "g-two-level": "two-level, 5 of 5"}
    assert run(["train", "--name", "g-two-level", "--resume", "--json"]) == 0


def test_groups_that_nobody_has(words: list[str], capsys: Capture) -> None:
    assert run([*words, "--groups", "5"]) == 2
    assert "A flat gate has no groups; leave --groups" in capsys.readouterr().err


def test_an_approximation_stands_beside_its_run(words: list[str], tmp_path: Path, capsys: Capture) -> None:
    assert run([*words, "--name", "a"]) == 0
    capsys.readouterr()
    made = [
        "approximate",
        "a",
        "--index",
        "cells",
        "--name",
        "a-cells",
        "--text",
        "text.jsonl",
        "--tokens",
        "640",
        "--wanted",
        "0.8",
    ]
    assert run([*made, "--json"]) == 0
    found = document(capsys)
    assert (found["run"], found["of"], found["gate"][-4:]) == ("a-cells", "a", "of 7")
    assert run(made) == 2
    assert "The run a-cells exists" in capsys.readouterr().err
    assert run(["evaluate", "a", "a-cells", "--text", "text.jsonl", "--seen-text", "--tokens", "320", "--json"]) == 0
    assert [it["run"] for it in document(capsys)] == ["a", "a-cells"]
    assert json.loads((tmp_path / "data" / "runs" / "a-cells" / "layer.json").read_text())["gate"]["gate"] == "cells"


def test_experts_of_a_gate_without_rows_are_compared_all_the_same(words: list[str], tmp_path: Path) -> None:
    assert run([*words, "--name", "a", "--gate", "product-key"]) == 0
    store = open_store(sqlite_url(tmp_path / "data"))
    text = TextConfig(text="text.jsonl", context=16)
    made = Run.load("a", tmp_path / "data")
    build_index(made, IndexConfig(text=text, tokens=640), LanguageModel.load("lm", "cpu"), store)
    store.dispose()
    with TestClient(create_app(Settings(data=tmp_path / "data", device="cpu"))) as client:
        found = client.get("/api/runs/a/experts/7/similar", params={"by": "gate", "limit": 3}).json()["experts"]
    rows_NI = made.layer.gate.rows(slice(None))
    cosine = float((rows_NI[7] @ rows_NI[found[0]["expert"]]) / rows_NI[7].norm() / rows_NI[found[0]["expert"]].norm())
    assert found[0]["similarity"] == pytest.approx(cosine, abs=1e-5)
