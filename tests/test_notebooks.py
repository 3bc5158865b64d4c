"""The notebooks run from the first cell to the last on a tiny model, and hold the outputs of a run on SmolLM2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import mxd
from tests.api.conftest import texts
from tests.helpers.language_models import saved_language_model

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def read(name: str) -> nbformat.NotebookNode:
    """Read a notebook as version 4."""
    notebook: nbformat.NotebookNode = nbformat.read(FOLDER / name, as_version=4)
    return notebook


@pytest.fixture(scope="module")
def parameters(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Source of the cell of parameters, for a tiny model and little text."""
    folder = tmp_path_factory.mktemp("inputs")
    for name, seed in (("text", 0), ("held-out", 1)):
        lines = [json.dumps({"text": text}) + "\n" for text in texts(60, seed)]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    language_model = str(saved_language_model(folder / "model"))
    values = {
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
    return "\n".join(f"{name} = {value!r}" for name, value in values.items())


def trained_run(folder: Path, language_model: str) -> Path:
    """Folder of a small indexed run."""
    model, tokenizer = mxd.load_model(language_model)
    text = folder / "text.jsonl"
    sizes: dict[str, Any] = {"num_experts": 40, "k": 4, "batch_tokens": 128}
    run = mxd.train(model, tokenizer, text, layer=1, tokens=2048, name="run", data=folder, progress=False, **sizes)
    mxd.index(run, text, tokens=1024, progress=False)
    return run.run.folder


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_outputs_are_committed_without_errors(name: str) -> None:
    cells = [cell for cell in read(name).cells if cell.cell_type == "code"]
    assert sum(bool(cell.outputs) for cell in cells) >= len(cells) / 2
    assert [it.output_type for cell in cells for it in cell.outputs if it.output_type == "error"] == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_notebook_runs(name: str, parameters: str, tmp_path: Path) -> None:
    notebook = read(name)
    (cell,) = [it for it in notebook.cells if "parameters" in it.metadata.get("tags", [])]
    cell.source = parameters
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [
        output.data["text/html"]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result" and "text/html" in output.data
    ]
    assert shown
    assert all("<script" not in html for html in shown)
    assert list((tmp_path / "data" / "runs").iterdir())
