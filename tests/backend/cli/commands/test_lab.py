"""``mxd lab train`` and ``mxd lab protect``: methods and flags that ``mxd train`` lacks, new runs, rejected input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mxd.backend.cli.commands.lab import LabTrainCommand
from mxd.backend.cli.commands.train import TrainCommand
from mxd.backend.cli.main import run
from mxd.backend.cli.parser import options
from mxd.trainer.storage.run import Run
from mxd.trainer.training.train import train_layer
from tests.backend.cli.words import Capture, train_words
from tests.helpers.language_models import saved, sure_language_model
from tests.helpers.runs import small_world


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


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data folder with runs of layers 0 and 1."""
    tmp_path = tmp_path_factory.mktemp("protect")
    world = small_world(tmp_path)
    here = str(saved(sure_language_model(), tmp_path / "language-model"))
    for name, layer in (("a", 0), ("b", 1)):
        config = world.config(name, layer=layer, language_model=here, tokens=128)
        train_layer(config, world.data, world.database, world.language_model)
    world.database.dispose()
    (tmp_path / "passages.txt").write_text("the red fox sang\n\nthe old dog sat and sang\n")
    return world.data


SHORT = {
    "--tokens": "1024",
    "--batch-tokens": "64",
    "--learning-rate": "0.003",
    "--max-added-loss": "5",
    "--attack-steps": "1",
}


def words(place: Path, *names: str, passages: str = "passages.txt", **flags: str) -> list[str]:
    """Return a command line; flags are named with underscores."""
    files = {"--passages": str(place.parent / passages), "--retain": str(place.parent / "text.jsonl")}
    given = {f"--{name.replace('_', '-')}": value for name, value in flags.items()}
    settings = {**files, **SHORT, **given, "--data": str(place), "--device": "cpu"}
    return ["lab", "protect", *names, *(word for pair in settings.items() for word in pair)]


def test_new_runs_are_written_and_measured(place: Path, capsys: Capture) -> None:
    assert run([*words(place, "b", "a", steps="3"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == ["a-private", "b-private"]
    assert found["protected"]["after"]["entropy"] > found["protected"]["before"]["entropy"]
    assert Run.load("b-private", place).config.parents == ("b", "a")
    assert run(words(place, "a", steps="3")) == 2
    assert "Run 'a-private' already exists." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "flags", "sentence"),
    [
        ("", {}, "holds no passages"),
        ("red", {"skip_tokens": "90"}, "Make it longer"),
        ("the old dog sang", {"tokens": "64"}, "at least 8 are needed"),
        ("the old dog sang", {"theta": "1"}, "theta"),
        ("the old dog sang", {"name": "a"}, "Run 'a' already exists."),
        ("the old dog sang", {"name": "a/b"}, "Invalid run name: 'a/b'."),
        ("the old dog " * 60, {}, "Shorten the text"),
    ],
)
def test_invalid_input_prints_one_line(
    place: Path, capsys: Capture, content: str, flags: dict[str, str], sentence: str
) -> None:
    (place.parent / "others.txt").write_text(content)
    before = sorted((place / "runs").iterdir())
    assert run(words(place, "a", passages="others.txt", **{"name": "{run}-new", **flags})) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert sentence in seen.err
    assert "Traceback" not in seen.err
    assert sorted((place / "runs").iterdir()) == before
