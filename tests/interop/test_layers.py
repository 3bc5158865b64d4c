"""Layers and features there and back: exported ones compute the same in the packages that read them, theirs do here."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGUFReader
from safetensors.torch import load_file, save_file

from benchmarks.peers.environments import ROOT
from mxd.backend.cli.main import run as mxd
from mxd.trainer.config.layer import LayerConfig
from mxd.trainer.layers.mxd import SparseLayer
from mxd.trainer.layers.variants import build_layer
from mxd.trainer.storage.formats import LayerFormat
from mxd.trainer.storage.formats.transcoders import export_layers
from mxd.trainer.storage.run import Run
from tests.helpers.runs import saved_language_model
from tests.interop.conftest import (
    CLT_TRAINING_COMMITS,
    MXD,
    PACKAGES,
    TOLERANCE,
    TRANSCODER,
    add_row,
    ask,
    browse,
    clt_training,
)

EXPERT = 2627
CASES: list[tuple[LayerFormat, tuple[str, ...]]] = [
    ("saelens", (MXD, TRANSCODER, "jumprelu-transcoder", "jumprelu-skip-transcoder", "autoencoder")),
    ("sparsify", (TRANSCODER, "skip-transcoder", "autoencoder")),
    ("circuit-tracer", (TRANSCODER, "jumprelu-transcoder", "jumprelu-skip-transcoder")),
]


def example_run(subject: str, demo: Path, folder: Path) -> Run:
    """A run of the demo, or one of its transcoder with a random layer of a method."""
    if subject in (MXD, TRANSCODER):
        return Run.load(subject, demo)
    run = Run.load(TRANSCODER, demo)
    config = LayerConfig(**{**run.layer.config.model_dump(), "method": subject, "num_experts": 512})
    torch.manual_seed(0)
    layer: SparseLayer = build_layer(config)
    with torch.no_grad():
        for name, value in [*layer.named_parameters(), *layer.named_buffers()]:
            value.copy_((torch.rand_like(value) if "threshold" in name else torch.randn_like(value)) * 0.05)
    found = Run(folder, run.config.model_copy(update={"method": subject}))
    found.__dict__["layer"] = layer  # instead of the weights in the folder
    return found


@pytest.mark.parametrize(("format", "subjects"), CASES)
def test_layers_compute_the_same(format: LayerFormat, subjects: tuple[str, ...], demo: Path, tmp_path: Path) -> None:
    arguments: list[Path] = []
    for subject in subjects:
        run = example_run(subject, demo, Run.load(TRANSCODER, demo).folder)
        folder, stored = tmp_path / subject, tmp_path / f"{subject}.safetensors"
        export_layers([run], format, folder)
        x_TI = torch.randn(200, run.layer.config.input_width, generator=torch.Generator().manual_seed(1)) * 0.2
        with torch.no_grad():
            save_file({"x": x_TI, "y": run.layer.eval()(x_TI).output_TO}, stored)
        arguments += [next(folder.rglob("*.json" if format == "sparsify" else "*")).parent, stored]
    found = ask(format, "load_layers", PACKAGES[format].split()[0], *arguments)
    for subject, difference in zip(subjects, found["differences"], strict=True):
        add_row(
            PACKAGES[format], found["version"], f"reads our {subject}", f"outputs differ by {difference:.1e}, relative"
        )
    assert max(found["differences"]) <= TOLERANCE


def test_vectors_are_read_and_equal(demo: Path, tmp_path: Path) -> None:
    for format in ("gguf", "vectors"):
        words = ["export", MXD, "--format", format, "--experts", str(EXPERT), "--out", str(tmp_path / format)]
        assert mxd([*words, "--data", str(demo), "--device", "cpu"]) == 0
    reader = GGUFReader(tmp_path / "gguf" / f"expert-{EXPERT}.gguf")
    assert reader.fields["general.architecture"].contents() == "controlvector"
    (tensor,) = reader.tensors
    vector_O = load_file(tmp_path / "vectors" / "vectors.safetensors")[f"expert.{EXPERT}"]
    difference = float((torch.tensor(tensor.data) - vector_O).abs().max())
    assert tensor.name == f"direction.{Run.load(MXD, demo).config.layer}"
    assert difference == 0
    assert float(vector_O.norm()) > 0
    add_row("gguf", "of the main environment", "reads our control vector", "equal to the .safetensors")


LAYER = 1


@pytest.mark.parametrize("format", PACKAGES)
def test_their_layers_compute_the_same_here(format: str, tmp_path: Path) -> None:
    written, model = tmp_path / "written", saved_language_model(tmp_path / "model")
    written.mkdir()
    found = ask(format, f"write_with_{format.replace('-', '_')}", written)
    for name in found["names"]:
        difference = import_difference(written, name, model, tmp_path / "data")
        result = f"outputs differ by {difference:.1e}, relative"
        add_row(PACKAGES[format], found["version"], f"wrote a {name}, which we import", result)
        assert difference <= TOLERANCE


@pytest.mark.parametrize(
    ("branch", "name", "settings"),
    [("mxd", "hidden-mxd", {"mxd": True}), ("molt", "hidden-mxd", {"mxd_h": 3}), ("molt", "transcoder", {})],
)
def test_layers_of_clt_training_are_equal(branch: str, name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    written, model = tmp_path / "written", saved_language_model(tmp_path / "model")
    written.mkdir()
    path = f"{clt_training(branch)}{os.pathsep}{ROOT}"
    ask("sparsify", "write_with_sparsify", written, name, json.dumps(settings), PYTHONPATH=path)
    difference = import_difference(written, name, model, tmp_path / "data")
    assert Run.load(name, tmp_path / "data").config.method == name
    result = f"outputs differ by {difference:.1e}, relative"
    commit = CLT_TRAINING_COMMITS[branch][:7]
    add_row(f"clt-training, branch {branch}", commit, f"wrote a {name}, which we import", result)
    assert difference <= TOLERANCE


def import_difference(written: Path, name: str, model: Path, data: Path) -> float:
    """Import a layer, and return the largest difference from its stored outputs, relative to the largest output."""
    words = [str(written / name), "--language-model", str(model), "--layer", str(LAYER), "--name", name]
    assert mxd(["import", *words, "--data", str(data)]) == 0
    stored = load_file(f"{written / name}.safetensors")
    with torch.no_grad():
        y_TO = Run.load(name, data).layer.eval()(stored["x"]).output_TO
    return float((y_TO - stored["y"]).abs().max() / stored["y"].abs().max())


def test_their_dashboards_are_browsed(tmp_path: Path) -> None:
    found = ask("dashboard", "write_dashboards", tmp_path / "written")
    browsed = browse(tmp_path / "written", tmp_path / "data")
    assert (browsed.experts, browsed.examples) == (found["features"], found["active"])
    result = f"{browsed.experts} features and the {browsed.examples} of {found['examples']} examples with an activation"
    add_row("sae-dashboard", found["version"], "wrote dashboards of a random SAE, which we browse", result)
