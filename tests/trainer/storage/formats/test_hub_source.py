"""Layers in a repository of a hub on this machine: only the files of the chosen one are fetched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mxd.backend.cli.main import run
from tests.helpers.formats.outside import save_sparsify
from tests.helpers.language_models import saved_language_model
from tests.helpers.servers.hub import COMMIT, fake_hub, using_hub

Capture = pytest.CaptureFixture[str]


def test_one_layer_of_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("MXD_DATA", str(tmp_path / "data"))
    lm = saved_language_model(tmp_path / "lm", "gpt2")
    for layer in (0, 1):
        save_sparsify(tmp_path / "repository" / f"layers.{layer}.mlp")
    words = ["--language-model", str(lm), "--name", "theirs", "--json"]
    several, unknown = ["import", "some-one/coders", *words], ["import", "some-one/other", *words]
    with fake_hub(models={"some-one/coders": tmp_path / "repository"}) as hub, using_hub(hub.url, tmp_path / "home"):
        assert [run(command) for command in (several, unknown)] == [2, 2]
        complaints = capsys.readouterr().err
        assert "Choose one with --layer or --part: layers.0.mlp, layers.1.mlp" in complaints
        assert "No such file, folder or Hugging Face Hub repo: some-one/other" in complaints
        assert run([*several, "--layer", "1"]) == 0
        assert not any("layers.0.mlp/sae" in asked for asked in hub.asked)
    result = json.loads(capsys.readouterr().out)
    assert (result["source"], result["part"], result["layer"]) == ("some-one/coders", "layers.1.mlp", 1)
    config = json.loads((tmp_path / "data" / "runs" / "theirs" / "run.json").read_text())
    assert config["origin"]["revision"] == COMMIT
    with using_hub("http://127.0.0.1:9", tmp_path / "home"):
        assert run(["others" if word == "theirs" else word for word in several]) == 2
    assert "does not respond" in capsys.readouterr().err
