"""``mxd contrast`` on two files and on two kinds of one, and ``mxd lab score-labels``, which stores its scores."""

from __future__ import annotations

import json
from pathlib import Path

from mxd.backend.cli.main import run
from tests.backend.cli.words import Capture

RED, BLUE = "the red fox ran", "a very old blue dog sat"


def written(path: Path, texts: dict[str, str]) -> str:
    rows = [{"kind": kind, "text": text} for kind, text in texts.items() for _ in range(12)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_contrast_of_files_equals_that_of_kinds(trained: Path, capsys: Capture) -> None:
    red, blue = written(trained / "red.jsonl", {"red": RED}), written(trained / "blue.jsonl", {"blue": BLUE})
    both = written(trained / "both.jsonl", {"red": RED, "blue": BLUE})
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
