"""The examples of the documents run unmodified and in order, in an empty folder, on the demo."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mxd.backend.cli.main import run
from tests.helpers.demo import TEST_DEMO
from tests.test_docs import commands

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)


def run_blocks(document: Path) -> dict[str, Any]:
    """Run a document's Python blocks in order. Returns the variables that they define."""
    names: dict[str, Any] = {}
    blocks = BLOCK.findall(document.read_text("utf-8"))
    assert blocks
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{document.name} block {number}", "exec"), names)
    return names


def test_the_page_on_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_blocks(ROOT / "docs" / "python.md")
    assert names["run"].run.folder == Path("data/runs/first")
    assert names["indexed"].active_experts > 20
    assert names["activations"].shape == (2, 6, 4096)
    assert names["steered"] != names["replaced"]
    assert len(names["table"]) == len(names["run"].examples(3))
    assert len(names["routing"].strongest()) == 8
    baseline, steered = (names["generation"].text(variant) for variant in ("baseline", "steered"))
    assert baseline and steered and baseline != steered
    for shown in ("info", "routing", "generation"):
        html = names[shown]._repr_html_()
        assert "background:rgba(" in html
        assert "<script" not in html


def test_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_blocks(ROOT / "README.md")
    assert names["activations"].shape[2] == 4096


def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "demo").symlink_to(TEST_DEMO)
    # The server runs forever and ablating 256 experts takes a minute; both have their own tests.
    lines = [words for words in commands(ROOT / "docs" / "tutorial.md") if words[0] not in ("serve", "ablate")]
    printed = {}
    for words in lines:
        assert run(words) == 0, words
        printed[words[0]] = capsys.readouterr().out
    assert list(printed) == ["train", "index", "runs", "route", "steer"]
    assert "first" in printed["runs"].splitlines()[1]
    default, steered = printed["steer"].strip().split("steered: ")
    assert default.removeprefix("default: ").strip() != steered.strip()
