"""The notebooks run from the first cell to the last on a tiny model, and hold the outputs of a run on SmolLM2."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mxd
from tests.api.conftest import texts
from tests.helpers.language_models import saved_language_model

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def code_cells(name: str) -> list[dict[str, Any]]:
    """Cells with code."""
    notebook = json.loads((FOLDER / name).read_text("utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


@pytest.fixture(scope="module")
def parameters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Values of the cell of parameters, for a tiny model and little text."""
    folder = tmp_path_factory.mktemp("inputs")
    for name, seed in (("text", 0), ("held-out", 1)):
        lines = [json.dumps({"text": text}) + "\n" for text in texts(60, seed)]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    language_model = str(saved_language_model(folder / "model"))
    return {
        "MODEL": language_model,
        "RUN": str(trained_run(folder, language_model)),
        "EXPERT": 0,
        "TEXT": str(folder / "text.jsonl"),
        "HELD_OUT": str(folder / "held-out.jsonl"),
        "LAYER": 1,
        "K": 4,
        "EXPERTS": 40,
        "MXD_EXPERTS": 40,
        "TRANSCODER_EXPERTS": 64,
        "TOKENS": "2k",
        "HELD_OUT_TOKENS": "1k",
    }


def trained_run(folder: Path, language_model: str) -> Path:
    """Folder of a small indexed run."""
    model, tokenizer = mxd.load_model(language_model)
    text = folder / "text.jsonl"
    sizes: dict[str, Any] = {"num_experts": 40, "k": 4, "batch_tokens": 128}
    run = mxd.train(model, tokenizer, text, layer=1, tokens=2048, name="run", data=folder, progress=False, **sizes)
    mxd.index(run, text, tokens=1024, progress=False)
    return run.run.folder


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
def test_outputs_are_committed_without_errors(name: str) -> None:
    cells = code_cells(name)
    assert sum(bool(cell["outputs"]) for cell in cells) >= len(cells) / 2
    assert [output for cell in cells for output in cell["outputs"] if output["output_type"] == "error"] == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_notebook_runs(
    name: str, parameters: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: a kernel of its own would import everything again."""
    monkeypatch.chdir(tmp_path)
    first, *others = code_cells(name)
    assert "parameters" in first["metadata"]["tags"]
    names = dict(parameters)
    pages = [html for cell in others for html in shown("".join(cell["source"]), names)]
    assert pages
    assert all("<script" not in html for html in pages)
    assert list((tmp_path / "data" / "runs").iterdir())
