"""Layers in a repository of a hub on this machine: only the files of the chosen one are fetched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.helpers.hub import COMMIT, fake_hub
from tests.helpers.language_models import saved_language_model
from tests.helpers.outside import save_sparsify

ROOT = Path(__file__).parents[4]


PROGRAM = """
import json, sys
from mxd.backend.cli.main import run
print([run(words) for words in json.loads(sys.argv[1])], file=sys.stderr)
"""


def mxd(*commands: list[str], endpoint: str, place: Path) -> subprocess.CompletedProcess[str]:
    """Commands in a process of their own: addresses are read when the hub's client is imported."""
    environment = {key: value for key, value in os.environ.items() if not key.upper().endswith("PROXY")}
    environment |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(place / "home"), "HF_HUB_OFFLINE": "0"}
    environment |= {"PYTHONPATH": str(ROOT), "MXD_DATA": str(place / "data")}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(commands)],
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
    several, unknown = ["import", "some-one/coders", *words], ["import", "some-one/other", *words]
    with fake_hub(models={"some-one/coders": tmp_path / "repository"}) as hub:
        done = mxd(several, unknown, [*several, "--layer", "1"], endpoint=hub.url, place=tmp_path)
        assert "[2, 2, 0]" in done.stderr
        assert "Choose one with --layer or --part: layers.0.mlp, layers.1.mlp" in done.stderr
        assert "No such file, folder or Hugging Face Hub repo: some-one/other" in done.stderr
        assert not any("layers.0.mlp/sae" in asked for asked in hub.asked)
    result = json.loads(done.stdout)
    assert (result["source"], result["part"], result["layer"]) == ("some-one/coders", "layers.1.mlp", 1)
    config = json.loads((tmp_path / "data" / "runs" / "theirs" / "run.json").read_text())
    assert config["origin"]["revision"] == COMMIT
    others = ["others" if word == "theirs" else word for word in several]
    away = mxd(others, endpoint="http://127.0.0.1:9", place=tmp_path)
    assert "[2]" in away.stderr
    assert "does not respond" in away.stderr
