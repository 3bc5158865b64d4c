"""``mxd train --gate``, and what the runs report about their gates."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from mxd.backend.api.app import create_app
from mxd.backend.cli.main import run
from mxd.backend.settings import Settings
from mxd.trainer.analysis.indexing import build_index
from mxd.trainer.config import IndexConfig, TextConfig
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.database.open import open_trainer_database, sqlite_url
from mxd.trainer.storage.run import Run
from tests.backend.cli.words import Capture, document
from tests.helpers.language_models import saved_language_model
from tests.helpers.runs import small_world


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Command line that trains runs of 8 steps, in a working directory with its inputs."""
    small_world(tmp_path).database.dispose()
    saved_language_model(tmp_path / "lm")
    monkeypatch.setenv("MXD_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    fixed = (
        "train lm --layer 1 --dataset text.jsonl --context-length 16 --batch-tokens 64 --buffer-tokens 512 --tokens 512"
    )
    return [*fixed.split(), "--k", "4", "--num-experts", "40"]


def test_a_sweep_over_gates(words: list[str], tmp_path: Path, capsys: Capture) -> None:
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


def test_groups_require_a_two_level_gate(words: list[str], capsys: Capture) -> None:
    assert run([*words, "--groups", "5"]) == 2
    assert "A flat gate has no groups" in capsys.readouterr().err


def test_similarity_of_experts_of_a_product_key_gate(words: list[str], tmp_path: Path) -> None:
    assert run([*words, "--name", "a", "--gate", "product-key"]) == 0
    database = open_trainer_database(sqlite_url(tmp_path / "data"))
    text = TextConfig(dataset="text.jsonl", context_length=16)
    made = Run.load("a", tmp_path / "data")
    build_index(made, IndexConfig(text=text, tokens=640), LanguageModel.load("lm", "cpu"), database)
    database.dispose()
    with TestClient(create_app(Settings(data=tmp_path / "data", device="cpu"))) as client:
        found = client.get("/api/runs/a/experts/7/similar", params={"by": "gate", "limit": 3}).json()["experts"]
    rows_NI = made.layer.gate.rows(slice(None))
    cosine = float((rows_NI[7] @ rows_NI[found[0]["expert"]]) / rows_NI[7].norm() / rows_NI[found[0]["expert"]].norm())
    assert found[0]["similarity"] == pytest.approx(cosine, abs=1e-5)
