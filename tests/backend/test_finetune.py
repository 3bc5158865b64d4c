"""``mxd finetune``: what it takes, writes and refuses, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.cli import run
from tests.language_models import saved_language_model
from tests.runs import small_world
from trainer.run import Run
from trainer.train import train

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A data folder with runs of layers 0 and 1, and one of another language model."""
    world = small_world(tmp_path)
    here, other = (str(saved_language_model(tmp_path / name)) for name in ("language-model", "other"))
    for name, layer, source in (("a", 0, here), ("b", 1, here), ("c", 2, other)):
        config = world.config(name, layer=layer, language_model=source, tokens=128)
        train(config, world.data, world.store, world.language_model)
    world.store.dispose()
    return world.data


def words(place: Path, *more: str) -> list[str]:
    return ["finetune", *more, "--data", str(place), "--device", "cpu"]


def test_new_runs_are_written_and_their_settings_are_known_again(place: Path, capsys: Capture) -> None:
    text = ["--text", str(place.parent / "text.jsonl"), "--tokens", "256", "--batch", "64", "--learning-rate", "1e-3"]
    assert run(words(place, "a", "b", *text, "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["run"] for one in found["runs"]] == ["a-whole", "b-whole"]
    assert found["kl_first"] > 0
    made = Run.load("b-whole", place).config
    assert (made.began_as, made.tokens, made.optimizer.learning_rate) == (("b", "a"), 256, 1e-3)
    assert made.text.context == 16
    assert run(words(place, "a", "b", "--resume")) == 0
    assert "b-whole: 256 tokens" in capsys.readouterr().out
    assert run(words(place, "a", "b", *text)) == 2
    assert "a-whole exists" in capsys.readouterr().err


def test_what_is_refused_is_one_sentence(place: Path, capsys: Capture) -> None:
    text = ["--text", str(place.parent / "text.jsonl"), "--tokens", "256"]
    for given, sentence in (
        (["a", "c", *text], "several language models"),
        (["a", "a", *text], "same layer, 0"),
        (["a", "b"], "--text and --tokens must be given"),
        (["a", "nobody", *text], "There is no run nobody"),
    ):
        assert run(words(place, *given)) == 2
        said = capsys.readouterr().err
        assert sentence in said
        assert len(said.splitlines()) == 1
