"""``mxd finetune``, ``mxd lab train`` and ``mxd lab protect``: new runs, resuming and rejected input."""

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
from tests.helpers.language_models import saved, saved_language_model, sure_language_model
from tests.helpers.runs import small_world


def trained_runs(folder: Path, runs: dict[str, tuple[int, Path]]) -> Path:
    """A data folder with short runs: name -> layer, and folder of the language model."""
    world = small_world(folder)
    for name, (layer, source) in runs.items():
        config = world.config(name, layer=layer, language_model=str(source), tokens=128)
        train_layer(config, world.data, world.database, world.language_model)
    world.database.dispose()
    return world.data


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data folder with runs of layers 0 and 1, and one of another language model."""
    folder = tmp_path_factory.mktemp("finetune")
    here, other = (saved_language_model(folder / name) for name in ("language-model", "other"))
    return trained_runs(folder, {"a": (0, here), "b": (1, here), "c": (2, other)})


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data folder with runs of layers 0 and 1, and passages to protect."""
    folder = tmp_path_factory.mktemp("protect")
    here = saved(sure_language_model(), folder / "language-model")
    (folder / "passages.txt").write_text("the red fox sang\n\nthe old dog sat and sang\n")
    return trained_runs(folder, {"a": (0, here), "b": (1, here)})


def test_new_runs_are_written_and_resumed_with_their_settings(place: Path, capsys: Capture) -> None:
    def finetune(line: str) -> int:
        return run(["finetune", *line.split(), "--data", str(place), "--device", "cpu"])

    text = f"--dataset {place.parent / 'text.jsonl'} --tokens 256"
    settings = f"{text} --batch-tokens 64 --learning-rate 1e-3"
    assert finetune(f"a b {settings} --json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["run"] for one in found["runs"]] == ["a-whole", "b-whole"]
    assert found["kl_first"] > 0
    made = Run.load("b-whole", place).config
    assert (made.parents, made.tokens, made.optimizer.learning_rate) == (("b", "a"), 256, 1e-3)
    assert made.text.context_length == 16
    assert finetune("a b --resume") == 0
    assert "b-whole: 256 tokens" in capsys.readouterr().out
    for line, sentence in (
        (f"a b {settings}", "Run 'a-whole' already exists."),
        (f"a c {text}", "different language models"),
        (f"a a {text}", "A run is listed twice"),
        ("a b", "Missing --dataset and --tokens."),
        (f"a nobody {text}", "Unknown run 'nobody'."),
    ):
        assert finetune(line) == 2
        said = capsys.readouterr().err
        assert sentence in said
        assert len(said.splitlines()) == 1


def test_experimental_runs_are_trained_and_resumed_in_the_lab_alone(workspace: Path, capsys: Capture) -> None:
    core, lab = options(TrainCommand), options(LabTrainCommand)
    assert lab.keys() - core.keys() == {"constant_weight", "diversity_weight", "freeze", "inputs"}
    assert ("hidden-mxd" in lab["method"].value, "hidden-mxd" in core["method"].value) == (True, False)
    given = ["--method", "low-rank-mxd,mxd", "--rank", "3", "--diversity-weight", "0.1", "--name", "a"]
    assert run(["lab", *train_words("--tokens", "512", *given)]) == 0
    assert run(["lab", "train", "--name", "a-mxd", "--resume"]) == 0
    ranks = [Run.load(f"a-{method}", workspace / "data").config.rank for method in ("low-rank-mxd", "mxd")]
    assert ranks == [3, None]
    capsys.readouterr()
    assert run(["train", "--name", "a-mxd", "--resume"]) == 2
    assert "Run 'a-mxd' has experimental settings. Use 'mxd lab train'." in capsys.readouterr().err


SHORT = "--tokens 1024 --batch-tokens 64 --learning-rate 0.003 --max-added-loss 5 --attack-steps 1"


def protect_words(private: Path, line: str, passages: str = "passages.txt") -> list[str]:
    """Return a command line: names and further flags, of which the last counts."""
    files = f"--passages {private.parent / passages} --retain {private.parent / 'text.jsonl'} --data {private}"
    return ["lab", "protect", *files.split(), *SHORT.split(), *line.split(), "--device", "cpu"]


def test_private_runs_are_written_and_measured(private: Path, capsys: Capture) -> None:
    assert run(protect_words(private, "b a --steps 3 --json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == ["a-private", "b-private"]
    assert found["protected"]["after"]["entropy"] > found["protected"]["before"]["entropy"]
    assert Run.load("b-private", private).config.parents == ("b", "a")
    assert run(protect_words(private, "a --steps 3")) == 2
    assert "Run 'a-private' already exists." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "line", "sentence"),
    [
        ("", "", "holds no passages"),
        ("red", "--skip-tokens 90", "Make it longer"),
        ("the old dog sang", "--tokens 64", "at least 8 are needed"),
        ("the old dog sang", "--theta 1", "theta"),
        ("the old dog sang", "--name a", "Run 'a' already exists."),
        ("the old dog sang", "--name a/b", "Invalid run name: 'a/b'."),
        ("the old dog " * 60, "", "Shorten the text"),
    ],
)
def test_invalid_protection_is_one_line(private: Path, capsys: Capture, content: str, line: str, sentence: str) -> None:
    (private.parent / "others.txt").write_text(content)
    before = sorted((private / "runs").iterdir())
    assert run(protect_words(private, f"a --name {{run}}-new {line}", "others.txt")) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert sentence in seen.err
    assert "Traceback" not in seen.err
    assert sorted((private / "runs").iterdir()) == before
