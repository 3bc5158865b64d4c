"""``mxd lab train``: experimental methods and flags, which ``mxd train`` does not offer."""

from __future__ import annotations

from pathlib import Path

import pytest

from mxd.backend.cli.commands.lab import LabTrainCommand
from mxd.backend.cli.commands.train import TrainCommand
from mxd.backend.cli.main import run
from mxd.backend.cli.parser import options
from mxd.trainer.storage.run import Run
from tests.helpers.language_models import saved_language_model
from tests.helpers.runs import small_world

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options that train runs of 8 steps, in a working directory with their inputs."""
    small_world(tmp_path).database.dispose()
    saved_language_model(tmp_path / "lm")
    monkeypatch.setenv("MXD_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    fixed = "lm --layer 1 --dataset text.jsonl --tokens 512 --k 4 --num-experts 40"
    return [*fixed.split(), "--context-length", "16", "--batch-tokens", "64", "--buffer-tokens", "512"]


def test_experimental_flags_exist_only_in_the_lab() -> None:
    core, lab = options(TrainCommand), options(LabTrainCommand)
    assert lab.keys() - core.keys() == {"diversity_weight", "freeze", "inputs"}
    assert "hidden-mxd" in lab["method"].value
    assert "hidden-mxd" not in core["method"].value


def test_experimental_runs_are_trained_and_resumed_in_the_lab(
    words: list[str], tmp_path: Path, capsys: Capture
) -> None:
    given = ["--method", "low-rank-mxd,mxd", "--rank", "3", "--diversity-weight", "0.1", "--name", "a"]
    assert run(["lab", "train", *words, *given]) == 0
    assert run(["lab", "train", "--name", "a-mxd", "--resume"]) == 0
    ranks = [Run.load(f"a-{method}", tmp_path / "data").config.rank for method in ("low-rank-mxd", "mxd")]
    assert ranks == [3, None]
    capsys.readouterr()
    assert run(["train", "--name", "a-mxd", "--resume"]) == 2
    assert "Run 'a-mxd' has experimental settings. Use 'mxd lab train'." in capsys.readouterr().err
