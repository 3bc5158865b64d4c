"""The notebooks run from the first cell to the last in an empty folder."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def read(name: str) -> nbformat.NotebookNode:
    """Read a notebook as version 4."""
    notebook: nbformat.NotebookNode = nbformat.read(FOLDER / name, as_version=4)
    return notebook


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_nothing_of_a_run_is_kept(name: str) -> None:
    cells = [cell for cell in read(name).cells if cell.cell_type == "code"]
    assert cells
    assert [cell.outputs for cell in cells if cell.outputs or cell.execution_count is not None] == []


def test_first_steps_end_in_a_steered_generation(tmp_path: Path) -> None:
    notebook = read("first-steps.ipynb")
    client = NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    shown = [
        output.data["text/html"]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result" and "text/html" in output.data
    ]
    assert len(shown) == 4, "a routing, an expert and two generations show themselves"
    assert all("background:rgba(" in html for html in shown)
    assert (tmp_path / "data" / "runs" / "first-steps" / "units.json").is_file()
    assert notebook.cells[-2].outputs[0].text.endswith(" nats per token\n")
