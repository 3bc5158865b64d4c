"""``mxd contrast`` on two files and on two kinds of one, and ``mxd lab score-labels``, which stores its scores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mxd.backend.cli.main import run
from mxd.backend.database.annotations import set_label
from mxd.backend.database.engine import opened
from mxd.trainer.storage.database.open import sqlite_url, writing

Capture = pytest.CaptureFixture[str]
RED, BLUE = "the red fox ran", "a very old blue dog sat"


def written(path: Path, texts: dict[str, str]) -> str:
    rows = [{"kind": kind, "text": text} for kind, text in texts.items() for _ in range(12)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_contrast_of_files_equals_that_of_kinds(workspace: Path, capsys: Capture) -> None:
    sizes = "--num-experts 40 --k 4 --context-length 16 --batch-tokens 64 --buffer-tokens 512 --tokens 512"
    assert run(f"train lm --layer 1 --dataset text.jsonl {sizes} --name small".split()) == 0
    capsys.readouterr()
    red, blue = written(workspace / "red.jsonl", {"red": RED}), written(workspace / "blue.jsonl", {"blue": BLUE})
    both = written(workspace / "both.jsonl", {"red": RED, "blue": BLUE})
    few = ["--min-tokens", "5", "--min-units", "2", "--shuffles", "5", "--json"]
    assert run(["contrast", "small", "--a", red, "--b", blue, *few]) == 0
    files = json.loads(capsys.readouterr().out)
    assert run(["contrast", "small", "--a", both, "--kind-a", "red", "--kind-b", "blue", *few]) == 0
    kinds = json.loads(capsys.readouterr().out)
    assert files["found_a"] > 0 and files["found_b"] > 0
    assert files["experts"] == kinds["experts"]
    assert (kinds["a"]["name"], kinds["b"]["documents"]) == ("red", 12)
    assert run(["contrast", "small", "--a", red, "--b", blue, *few[:-1]]) == 0
    printed = capsys.readouterr().out
    assert "More often in A" in printed and "«" in printed and "by chance" in printed
    assert run(["contrast", "small", "--a", red]) == 2
    assert "Text A and text B are the same" in capsys.readouterr().err
    assert run(["lab", "score-labels", "small"]) == 2
    assert "fewer than two labels" in capsys.readouterr().err


def test_label_scores_are_stored_with_the_experts(workspace: Path, capsys: Capture) -> None:
    sizes = "--num-experts 40 --k 4 --context-length 16 --batch-tokens 64 --buffer-tokens 512 --tokens 512"
    assert run(f"train lm --layer 1 --dataset text.jsonl {sizes} --name small".split()) == 0
    assert run(["index", "small", "--dataset", "text.jsonl", "--tokens", "512"]) == 0
    assert run(["experts", "small", "--limit", "2", "--sort", "density", "--json"]) == 0
    first, second = (row["expert"] for row in json.loads(capsys.readouterr().out.splitlines()[-1])["experts"])
    with opened(sqlite_url(workspace / "data")) as database, writing(database) as session:
        set_label(session, "small", first, "foxes")
        set_label(session, "small", second, "hounds")
    chosen = ["--expert", str(first), "--expert", str(second), "--score", "detection", "--texts", "3"]
    assert run(["lab", "score-labels", "small", *chosen, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    own, control = (
        next(each[kind]["detection"] for each in result["labels"] if each["expert"] == first)
        for kind in ("scores", "other_scores")
    )
    assert run(["expert", "small", str(first), "--json"]) == 0
    (stored,) = json.loads(capsys.readouterr().out)["label_scores"]
    assert (stored["score"], stored["control"]) == (own["value"], control["value"])
    assert (stored["judge"], stored["texts"]) == ("lm", own["positive_texts"] + own["negative_texts"])
    assert run(["expert", "small", str(first)]) == 0
    assert f"texts, judge {stored['judge']}" in capsys.readouterr().out
