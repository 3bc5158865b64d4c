"""The commands from training to steering, on one run."""

from __future__ import annotations

from pathlib import Path

import pytest

from mxd.backend.cli.main import run
from mxd.trainer.errors import UsageWarning
from mxd.trainer.storage.run import Run
from tests.backend.cli.words import Capture, document, train_words


def test_train_index_explore_and_steer(workspace: Path, capsys: Capture) -> None:
    assert run(train_words("--name", "small", "--json")) == 0
    trained = document(capsys)
    assert trained.keys() >= {"run", "tokens", "normalized_mse", "dead_share", "tokens_per_second"}
    assert (trained["run"], trained["tokens"], trained["status"]) == ("small", 1536, "finished")

    assert run(["index", "small", "--dataset", "text.jsonl", "--tokens", "2k", "--json"]) == 0
    indexed = document(capsys)
    assert indexed["run"] == "small"
    assert min(indexed["examples"], indexed["active_experts"]) > 0
    assert indexed["tokens"] % 16 == 0, "the run's context length is used"

    assert run(["runs", "--json"]) == 0
    (listed,) = document(capsys)
    assert (listed["name"], listed["status"], listed["indexed_tokens"]) == ("small", "finished", indexed["tokens"])
    assert run(["runs"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith(f"small  finished  {workspace / 'lm'}")

    assert run(["experts", "small", "--sort", "density", "--limit", "3", "--json"]) == 0
    listed_experts = document(capsys)
    densities = [row["density"] for row in listed_experts["experts"]]
    assert (len(densities), densities, listed_experts["total"]) == (3, sorted(densities, reverse=True), 40)
    strongest = listed_experts["experts"][0]["expert"]
    assert run(["experts", "small", "--search", "fox"]) == 0
    assert "matching experts shown" in capsys.readouterr().out
    assert run(["experts", "small", str(strongest), "--examples", "2", "--json"]) == 0
    shown = document(capsys)
    assert (shown["row"]["expert"], len(shown["examples"])) == (strongest, 2)
    assert run(["experts", "small", str(strongest)]) == 0
    assert capsys.readouterr().out.startswith(f"expert {strongest}: ")
    assert run(["experts", "small", "9999"]) == 2
    assert "Unknown expert 9999. Run 'small' has experts 0 to 39." in capsys.readouterr().err

    assert run(["route", "small", "the fox", "--json"]) == 0
    routed = document(capsys)
    assert "".join(token["text"] for token in routed["tokens"][1:]) == "the fox"
    assert all(0 < len(token["experts"]) <= 4 for token in routed["tokens"])
    assert run(["route", "small", "the fox", "--top", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 8

    limits = "--unwanted s --hits 2 --probability 0.9954 --max-price 10"
    words = ["find", "small", "--prompt", "the fox", *limits.split()]
    assert run([*words, "--json"]) == 0
    found = document(capsys)
    assert len(found["experts"]) == len(found["effects"]) == 2
    assert run(words) == 0
    *_, command = capsys.readouterr().out.splitlines()
    best = found["experts"][0]["edit"]["expert"]
    assert command.startswith(f"Run: mxd steer small 'the fox' --edit small/{best}:add")

    words = ["steer", "small", "the fox", "--edit", "12:scale:3", "--edit", "30:ablate", "--max-tokens", "5"]
    assert run([*words, "--temperature", "0", "--json"]) == 0
    steered = document(capsys)
    assert len(steered["baseline"][0]["tokens"]) <= 5
    assert steered["steered"][0].keys() == {"text", "reason", "tokens"}


def test_a_run_is_used_from_any_folder(trained: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["steer", "small", "the", "--edit", "12:add:1", "--max-tokens", "2", "--json"]
    elsewhere = trained / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with pytest.warns(UsageWarning, match="99th percentile of expert 12 is unknown"):
        assert run(words) == 0
    Run.load("small", trained / "data").write_units({12: 2.5})
    assert run(words) == 0
    assert "is unknown" not in capsys.readouterr().err
