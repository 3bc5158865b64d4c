"""Several values of a flag: every combination, each with a name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.cli import run
from backend.commands.sweep import combinations, run_name
from tests.backend.test_cli import Capture, document
from tests.language_models import saved_language_model
from tests.runs import small_world
from trainer.errors import UserError
from trainer.run import Run, run_names

CHOSEN = {"layer": 3, "method": "mxd", "num_experts": "auto", "k": 16, "learning_rate": 3e-3, "seed": 1}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with text, a language model and data, in which commands run."""
    small_world(tmp_path).store.dispose()
    saved_language_model(tmp_path / "lm")
    monkeypatch.setenv("MXD_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train_words(*more: str) -> list[str]:
    """A command line that fits runs of 8 steps."""
    fixed = "train lm --text text.jsonl --context 16 --batch 64 --window 512 --tokens 512"
    return [*fixed.split(), *more]


def test_every_combination_once() -> None:
    found = combinations({"k": (1, 2), "layer": (3,), "method": ("mxd", "transcoder")})
    assert [(one["k"], one["layer"], one["method"]) for one in found] == [
        (1, 3, "mxd"),
        (1, 3, "transcoder"),
        (2, 3, "mxd"),
        (2, 3, "transcoder"),
    ]


@pytest.mark.parametrize(
    ("pattern", "varied", "name"),
    [
        ("mine", [], "mine"),
        ("mine", ["k", "method"], "mine-k16-mxd"),
        ("mine-{method}-at-{k}", ["k", "method", "seed"], "mine-mxd-at-16-s1"),
        ("{layer}.{learning-rate}.{num-experts}", ["layer"], "3.0.003.auto"),
        ("{num_experts}", [], "auto"),
    ],
)
def test_names(pattern: str, varied: list[str], name: str) -> None:
    assert run_name(pattern, CHOSEN, varied) == name


def test_a_place_for_nothing_is_said() -> None:
    with pytest.raises(UserError, match=r"no use for \{width\}.*\{layer\}, \{method\}"):
        run_name("mine-{width}", CHOSEN, [])


def test_a_frontier_on_one_pass(place: Path, capsys: Capture) -> None:
    words = train_words(
        "--layer", "1", "--k", "2,4", "--method", "mxd,transcoder", "--num-experts", "40", "--name", "f-{method}"
    )
    assert run([*words, "--json"]) == 0
    found = document(capsys)
    names = ["f-mxd-k2", "f-mxd-k4", "f-transcoder-k2", "f-transcoder-k4"]
    assert [result["run"] for result in found] == names
    assert run_names(place / "data") == names
    assert run(words) == 2
    assert "The run f-mxd-k2 exists" in capsys.readouterr().err
    assert run([*words, "--resume", "--json"]) == 0
    assert document(capsys)[0]["normalised_mse"] == found[0]["normalised_mse"]
    assert run(["train", "--name", "f-mxd-k4", "--resume", "--json"]) == 0
    assert document(capsys)["run"] == "f-mxd-k4"


def test_layers_seeds_and_sizes(place: Path, capsys: Capture) -> None:
    words = ["--layer", "0,2", "--k", "4", "--seed", "5,6", "--num-experts", "40", "--num-experts", "auto"]
    assert run(train_words(*words, "--json")) == 0
    names = {result["run"] for result in document(capsys)}
    assert len(names) == 8
    assert {"lm-l0-k4-n40-s5", "lm-l2-k4-nauto-s6"} <= names
    config = Run.load("lm-l2-k4-n40-s6", place / "data").config
    assert (config.layer, config.num_experts, config.seed, config.text_seed) == (2, 40, 6, 5)
    assert Run.load("lm-l2-k4-n40-s5", place / "data").config.text_seed is None


def test_a_file_of_settings_may_hold_one_value_or_several(place: Path, capsys: Capture) -> None:
    settings = {"k": [2, 3], "layer": 1, "num-experts": ["40"], "learning-rate": 0.02}
    Path("fit.json").write_text(json.dumps(settings))
    assert run(train_words("--config", "fit.json", "--json")) == 0
    assert [result["run"] for result in document(capsys)] == ["lm-l1-k2", "lm-l1-k3"]
    assert Run.load("lm-l1-k3", place / "data").config.optimizer.learning_rate == 0.02


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--k", "2,none"], "--k: Input should be a valid integer"),
        (["--k", "2,2", "--name", "mine"], "2 runs would be named mine-k2"),
        (["--method", "mxd,moe"], "--method: Input should be 'mxd'"),
        (["--name", "{width}"], "--name has no use for {width}"),
    ],
)
def test_bad_values_are_one_line(place: Path, capsys: Capture, words: list[str], sentence: str) -> None:
    assert run(train_words("--layer", "1", *words)) == 2
    seen = capsys.readouterr()
    assert sentence in seen.err.splitlines()[-1]
    assert not run_names(place / "data")
