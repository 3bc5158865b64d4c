"""Files that the packages write themselves are read: layers, attribution graphs and dashboards."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from benchmarks.peers.environments import ROOT
from mxd.backend.cli.main import run as mxd
from mxd.trainer.storage.run import Run
from tests.helpers.language_models import saved_language_model
from tests.interop.conftest import PACKAGES, TOLERANCE, Table, browse
from tests.interop.environments import CLT_TRAINING_COMMITS, ORACLES, Oracles, clt_training

LAYER = 1


@pytest.mark.parametrize("format", PACKAGES)
def test_their_layers_compute_the_same_here(format: str, tmp_path: Path, oracles: Oracles, table: Table) -> None:
    written, model = tmp_path / "written", saved_language_model(tmp_path / "model")
    written.mkdir()
    found = oracles.ask(format, f"write_with_{format.replace('-', '_')}", written)
    for name in found["names"]:
        difference = import_difference(written, name, model, tmp_path / "data")
        result = f"outputs differ by {difference:.1e}, relative"
        table.add(PACKAGES[format], found["version"], f"wrote a {name}, which we import", result)
        assert difference <= TOLERANCE


@pytest.mark.parametrize(
    ("branch", "name", "settings"),
    [("mxd", "hidden-mxd", {"mxd": True}), ("molt", "hidden-mxd", {"mxd_h": 3}), ("molt", "transcoder", {})],
)
def test_layers_of_clt_training_compute_the_same_here(
    branch: str, name: str, settings: dict[str, Any], tmp_path: Path, oracles: Oracles, table: Table
) -> None:
    written, model = tmp_path / "written", saved_language_model(tmp_path / "model")
    written.mkdir()
    script = ORACLES / "write_with_clt_training.py"
    path = f"{clt_training(branch)}{os.pathsep}{ROOT}"
    oracles.run("sparsify", script, written, name, json.dumps(settings), PYTHONPATH=path)
    difference = import_difference(written, name, model, tmp_path / "data")
    assert Run.load(name, tmp_path / "data").config.method == name
    commit = CLT_TRAINING_COMMITS[branch][:7]
    result = f"outputs differ by {difference:.1e}, relative"
    table.add(f"clt-training, branch {branch}", commit, f"wrote a {name}, which we import", result)
    assert difference <= TOLERANCE


def import_difference(written: Path, name: str, model: Path, data: Path) -> float:
    """Import a layer, and return the largest difference from its stored outputs, relative to the largest output."""
    words = [str(written / name), "--language-model", str(model), "--layer", str(LAYER), "--name", name]
    assert mxd(["import", *words, "--data", str(data)]) == 0
    stored = load_file(f"{written / name}.safetensors")
    with torch.no_grad():
        y_TO = Run.load(name, data).layer.eval()(stored["x"]).output_TO
    return float((y_TO - stored["y"]).abs().max() / stored["y"].abs().max())


def test_their_dashboards_are_browsed(tmp_path: Path, oracles: Oracles, table: Table) -> None:
    found = oracles.ask("dashboard", "write_dashboards", tmp_path / "written")
    browsed = browse(tmp_path / "written", tmp_path / "data")
    assert (browsed.experts, browsed.examples) == (found["features"], found["active"])
    result = f"{browsed.experts} features and the {browsed.examples} of {found['examples']} examples with an activation"
    table.add("sae-dashboard", found["version"], "wrote dashboards of a random SAE, which we browse", result)
