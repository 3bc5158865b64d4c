"""``mxd contrast`` on two files and on two kinds of one, and ``mxd lab score-labels``, which stores its scores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mxd.backend.cli.main import run

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
