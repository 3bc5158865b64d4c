"""Sweeps: every combination of values, each with a run name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mxd.backend.cli.commands.train import run_name
from mxd.backend.cli.main import run
from mxd.trainer.storage.run import Run, run_names
from tests.backend.cli.words import Capture, document

CHOSEN = {"layer": 3, "method": "mxd", "num_experts": "auto", "k": 16, "learning_rate": 3e-3, "seed": 1}


def train_words(*more: str) -> list[str]:
    """Return a command line that trains runs of 8 steps."""
    fixed = "train lm --dataset text.jsonl --context-length 16 --batch-tokens 64 --buffer-tokens 512 --tokens 512"
    return [*fixed.split(), *more]


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


def test_a_frontier_in_one_pass(workspace: Path, capsys: Capture) -> None:
    words = train_words(
        "--layer", "1", "--k", "2,4", "--method", "mxd,transcoder", "--num-experts", "40", "--name", "f-{method}"
    )
    assert run([*words, "--json"]) == 0
    found = document(capsys)
    names = ["f-mxd-k2", "f-mxd-k4", "f-transcoder-k2", "f-transcoder-k4"]
    assert [result["run"] for result in found] == names
    assert run_names(workspace / "data") == names
    assert run(words) == 2
    assert "Run 'f-mxd-k2' already exists" in capsys.readouterr().err
    assert run([*words, "--resume", "--json"]) == 0
    assert document(capsys)[0]["normalized_mse"] == found[0]["normalized_mse"]
    assert run(["train", "--name", "f-mxd-k4", "--resume", "--json"]) == 0
    assert document(capsys)["run"] == "f-mxd-k4"


def test_layers_seeds_and_sizes(workspace: Path, capsys: Capture) -> None:
    words = ["--layer", "0,2", "--k", "4", "--seed", "5,6", "--num-experts", "40", "--num-experts", "auto"]
    assert run(train_words(*words, "--json")) == 0
    names = {result["run"] for result in document(capsys)}
    assert len(names) == 8
    assert {"lm-l0-k4-n40-s5", "lm-l2-k4-nauto-s6"} <= names
    config = Run.load("lm-l2-k4-n40-s6", workspace / "data").config
    assert (config.layer, config.num_experts, config.seed, config.data_seed) == (2, 40, 6, 5)
    assert Run.load("lm-l2-k4-n40-s5", workspace / "data").config.data_seed is None


def test_config_files_may_hold_one_value_or_several(workspace: Path, capsys: Capture) -> None:
    settings = {"k": [2, 3], "layer": 1, "num-experts": ["40"], "learning-rate": 0.02}
    Path("fit.json").write_text(json.dumps(settings))
    assert run(train_words("--config", "fit.json", "--json")) == 0
    assert [result["run"] for result in document(capsys)] == ["lm-l1-k2", "lm-l1-k3"]
    assert Run.load("lm-l1-k3", workspace / "data").config.optimizer.learning_rate == 0.02


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--k", "2,none"], "Invalid --k: 'none'. Input should be a valid integer"),
        (["--k", "2,2", "--name", "mine"], "2 runs have the name 'mine-k2'"),
        (["--method", "mxd,moe"], "Unknown method 'moe'"),
        (["--name", "{width}"], "Unknown placeholder in --name: {width}"),
    ],
)
def test_invalid_values_print_one_line(workspace: Path, capsys: Capture, words: list[str], sentence: str) -> None:
    assert run(train_words("--layer", "1", *words)) == 2
    seen = capsys.readouterr()
    assert sentence in seen.err.splitlines()[-1]
    assert not run_names(workspace / "data")
