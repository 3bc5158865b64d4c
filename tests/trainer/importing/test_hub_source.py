"""Layers in a repository of a hub on this machine: only the files of the chosen one are fetched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.hub import COMMIT, fake_hub
from tests.language_models import saved_language_model
from tests.outside import save_sparsify

ROOT = Path(__file__).parents[3]


def mxd(*words: str, endpoint: str, place: Path) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own: addresses are read when the hub's client is imported."""
    environment = {key: value for key, value in os.environ.items() if not key.upper().endswith("PROXY")}
    environment |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(place / "home"), "HF_HUB_OFFLINE": "0"}
    environment |= {"PYTHONPATH": str(ROOT), "MXD_DATA": str(place / "data")}
    return subprocess.run(
        [sys.executable, "-m", "backend.cli", *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )


def test_one_layer_of_a_repository(tmp_path: Path) -> None:
    lm = saved_language_model(tmp_path / "lm", "gpt2")
    for layer in (0, 1):
        save_sparsify(tmp_path / "repository" / f"layers.{layer}.mlp")
    words = ["--language-model", str(lm), "--name", "theirs", "--json"]
    with fake_hub(models={"some-one/coders": tmp_path / "repository"}) as hub:
        several = mxd("import", "some-one/coders", *words, endpoint=hub.url, place=tmp_path)
        assert several.returncode == 2
        assert "choose one with --layer or --part: layers.0.mlp, layers.1.mlp" in several.stderr
        unknown = mxd("import", "some-one/other", *words, endpoint=hub.url, place=tmp_path)
        assert unknown.returncode == 2
        assert "no file, folder or repository some-one/other" in unknown.stderr
        done = mxd("import", "some-one/coders", "--layer", "1", *words, endpoint=hub.url, place=tmp_path)
        assert done.returncode == 0, done.stderr
        assert not any("layers.0.mlp/sae" in asked for asked in hub.asked)
    result = json.loads(done.stdout)
    assert (result["source"], result["part"], result["layer"]) == ("some-one/coders", "layers.1.mlp", 1)
    config = json.loads((tmp_path / "data" / "runs" / "theirs" / "run.json").read_text())
    assert config["origin"]["revision"] == COMMIT
    words[words.index("theirs")] = "others"
    away = mxd("import", "some-one/coders", *words, endpoint="http://127.0.0.1:9", place=tmp_path)
    assert away.returncode == 2
    assert "does not answer" in away.stderr
