"""``mxd finetune``: new runs, resuming and rejected input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mxd.backend.cli.main import run
from mxd.trainer.storage.run import Run
from mxd.trainer.training.train import train_layer
from tests.backend.cli.words import Capture
from tests.helpers.language_models import saved_language_model
from tests.helpers.runs import small_world


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data folder with runs of layers 0 and 1, and one of another language model."""
    tmp_path = tmp_path_factory.mktemp("finetune")
    world = small_world(tmp_path)
    here, other = (str(saved_language_model(tmp_path / name)) for name in ("language-model", "other"))
    for name, layer, source in (("a", 0, here), ("b", 1, here), ("c", 2, other)):
        config = world.config(name, layer=layer, language_model=source, tokens=128)
        train_layer(config, world.data, world.database, world.language_model)
    world.database.dispose()
    return world.data


def words(place: Path, *more: str) -> list[str]:
    return ["finetune", *more, "--data", str(place), "--device", "cpu"]


def test_new_runs_are_written_and_resumed_with_their_settings(place: Path, capsys: Capture) -> None:
    sizes = "--tokens 256 --batch-tokens 64 --learning-rate 1e-3"
    text = ["--dataset", str(place.parent / "text.jsonl"), *sizes.split()]
    assert run(words(place, "a", "b", *text, "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["run"] for one in found["runs"]] == ["a-whole", "b-whole"]
    assert found["kl_first"] > 0
    made = Run.load("b-whole", place).config
    assert (made.parents, made.tokens, made.optimizer.learning_rate) == (("b", "a"), 256, 1e-3)
    assert made.text.context_length == 16
    assert run(words(place, "a", "b", "--resume")) == 0
    assert "b-whole: 256 tokens" in capsys.readouterr().out
    assert run(words(place, "a", "b", *text)) == 2
    assert "Run 'a-whole' already exists." in capsys.readouterr().err


def test_invalid_input_prints_one_line(place: Path, capsys: Capture) -> None:
    text = ["--dataset", str(place.parent / "text.jsonl"), "--tokens", "256"]
    for given, sentence in (
        (["a", "c", *text], "different language models"),
        (["a", "a", *text], "A run is listed twice"),
        (["a", "b"], "Missing --dataset and --tokens."),
        (["a", "nobody", *text], "Unknown run 'nobody'."),
    ):
        assert run(words(place, *given)) == 2
        said = capsys.readouterr().err
        assert sentence in said
        assert len(said.splitlines()) == 1
