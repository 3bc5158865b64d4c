"""``mxd train --plan``, and runs that do not fit in memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mxd.backend.cli.main import run
from tests.helpers.language_models import saved_language_model
from tests.helpers.runs import small_world

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Command line that trains a run of 24 steps, in a working directory with its inputs."""
    small_world(tmp_path).database.dispose()
    saved_language_model(tmp_path / "lm")
    monkeypatch.chdir(tmp_path)
    fixed = (
        "train lm --layer 1 --dataset text.jsonl --tokens 1536 --num-experts 40 --k 4 --context-length 16 --data new"
    )
    return [*fixed.split(), "--batch-tokens", "64", "--buffer-tokens", "512"]


def test_a_plan_is_a_dry_run(words: list[str], capsys: Capture) -> None:
    assert run([*words, "--plan", "--json", "--processes", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["tokens"], found["processes"], found["refusal"]) == (1536, 2, None)
    assert found["layers"][0]["num_experts"] == 40
    assert sum(found["memory"].values()) == found["memory_total"]
    assert run([*words, "--plan"]) == 0
    said = capsys.readouterr().out
    assert "N 40, K 4" in said
    assert "tokens/s" in said
    assert not Path("new").exists()


@pytest.mark.parametrize("more", [[], ["--plan"]])
def test_runs_that_do_not_fit_in_memory_are_rejected_before_loading(
    words: list[str], more: list[str], capsys: Capture
) -> None:
    Path("lm/model.safetensors").unlink()
    words[words.index("40")] = "200M"
    assert run([*words, *more]) == 2
    said = capsys.readouterr()
    assert "GB are free. --num-experts" in said.err
    assert bool(said.out) == bool(more)
    assert not Path("new").exists()


def test_a_plan_of_an_unknown_layer(words: list[str], capsys: Capture) -> None:
    words[words.index("1")] = "7"
    assert run([*words, "--plan"]) == 2
    assert "layers 0 to 2" in capsys.readouterr().err


def test_too_many_experts_are_rejected(words: list[str], capsys: Capture) -> None:
    words[words.index("40")] = "10000B"
    assert run(words) == 2
    assert capsys.readouterr().err.startswith("mxd: Invalid --num-experts: ")
