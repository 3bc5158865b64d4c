"""``mxd evaluate``: results, the cache, rejected runs and text."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mxd.backend.cli.main import run
from tests.backend.cli.words import Capture, document, train_words


def test_evaluate(workspace: Path, capsys: Capture) -> None:
    assert run(train_words("--name", "a")) == 0
    words = train_words("--name", "b")
    words[words.index("--layer") + 1] = "2"
    assert run(words) == 0
    capsys.readouterr()
    lines = [f'{{"text": "held out {number} the old fox sang"}}' for number in range(40)]
    (workspace / "held.jsonl").write_text("\n".join(lines))
    (workspace / "other.txt").write_text("dreizehn alte Hunde. " * 60)
    words = ["evaluate", "a", "b", "--dataset", "held.jsonl", "--tokens", "320", "--resamples", "100"]
    assert run([*words, "--together", "--other-dataset", "other.txt", "--json"]) == 0
    first, second, both = document(capsys)
    wanted = "run method num_experts k parameters ce_original ce_replaced ce_zeroed ce_mean_ablated kl l0 loss_increase"
    assert first.keys() >= {*wanted.split(), "normalized_mse", "variance_explained", "dead_share", "routing_share"}
    assert first["loss_increase"].keys() == {"value", "low", "high"}
    assert first["shared_expert"].keys() >= {"loss_increase_without"}
    assert (first["run"], second["run"], both["run"]) == ("a", "b", "a + b")
    assert first["other_dataset"]["text"] == "other.txt"
    assert run([*words, "--together", "--other-dataset", "other.txt", "--json"]) == 0
    printed = capsys.readouterr()
    again = json.loads(printed.out)
    for result in (first, second, both, *again):
        del result["provenance"]["seconds"]
    assert again == [first, second, both]
    assert "Evaluating" not in printed.err, "earlier results are cached in the database"
    assert run(words) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "run"
    assert [row.split()[0] for row in rows[:2]] == ["a", "b"]
    cells = dict(zip(*(re.split(r" {2,}", line.strip()) for line in (head, rows[0])), strict=True))
    assert cells["routing"] == f"{first['routing_share']:.2f}", cells
    assert cells["strict"] == f"{first['strict_routing_share']:.2f}"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["small", "--dataset", "text.jsonl"], "small was trained on text.jsonl"),
        (["small", "small", "--dataset", "held.txt"], "named twice"),
        (["b", "--dataset", "held.txt"], "Unknown run 'b'. Run 'mxd runs' for a list."),
        (["small", "--dataset", "held.txt"], "has 12 tokens"),
    ],
)
def test_evaluate_rejects_unusable_runs_and_text(
    trained: Path, capsys: Capture, words: list[str], sentence: str
) -> None:
    (trained / "held.txt").write_text("held-out te")
    assert run(["evaluate", *words, "--tokens", "320"]) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.out == ""
