"""``mxd lab train``: experimental methods and flags, which ``mxd train`` does not offer."""

from __future__ import annotations

from pathlib import Path

from mxd.backend.cli.commands.lab import LabTrainCommand
from mxd.backend.cli.commands.train import TrainCommand
from mxd.backend.cli.main import run
from mxd.backend.cli.parser import options
from mxd.trainer.storage.run import Run
from tests.backend.cli.words import Capture, train_words


def test_experimental_flags_exist_only_in_the_lab() -> None:
    core, lab = options(TrainCommand), options(LabTrainCommand)
    assert lab.keys() - core.keys() == {"constant_weight", "diversity_weight", "freeze", "inputs"}
    assert "hidden-mxd" in lab["method"].value
    assert "hidden-mxd" not in core["method"].value


def test_experimental_runs_are_trained_and_resumed_in_the_lab(workspace: Path, capsys: Capture) -> None:
    given = ["--method", "low-rank-mxd,mxd", "--rank", "3", "--diversity-weight", "0.1", "--name", "a"]
    assert run(["lab", *train_words("--tokens", "512", *given)]) == 0
    assert run(["lab", "train", "--name", "a-mxd", "--resume"]) == 0
    ranks = [Run.load(f"a-{method}", workspace / "data").config.rank for method in ("low-rank-mxd", "mxd")]
    assert ranks == [3, None]
    capsys.readouterr()
    assert run(["train", "--name", "a-mxd", "--resume"]) == 2
    assert "Run 'a-mxd' has experimental settings. Use 'mxd lab train'." in capsys.readouterr().err
