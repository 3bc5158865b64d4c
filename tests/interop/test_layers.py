"""Exported layers compute the same in the packages that read them; vectors are what the language model adds."""

from pathlib import Path

import pytest
import torch
from gguf import GGUFReader
from safetensors.torch import load_file, save_file

from mxd.backend.cli.main import run as mxd
from mxd.trainer.config import LayerConfig
from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.storage.formats import LayerFormat
from mxd.trainer.storage.formats.export import export_layers
from mxd.trainer.storage.run import Run
from tests.interop.conftest import MXD, PACKAGES, TOLERANCE, TRANSCODER, Table
from tests.interop.environments import Oracles

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
def test_layers_compute_the_same(
    format: LayerFormat, subjects: tuple[str, ...], demo: Path, tmp_path: Path, oracles: Oracles, table: Table
) -> None:
    arguments: list[Path] = []
    for subject in subjects:
        run = example_run(subject, demo, Run.load(TRANSCODER, demo).folder)
        folder, stored = tmp_path / subject, tmp_path / f"{subject}.safetensors"
        export_layers([run], format, folder)
        x_TI = torch.randn(200, run.layer.config.input_width, generator=torch.Generator().manual_seed(1)) * 0.2
        with torch.no_grad():
            save_file({"x": x_TI, "y": run.layer.eval()(x_TI).output_TO}, stored)
        arguments += [next(folder.rglob("*.json" if format == "sparsify" else "*")).parent, stored]
    found = oracles.ask(format, "load_layers", PACKAGES[format].split()[0], *arguments)
    for subject, difference in zip(subjects, found["differences"], strict=True):
        table.add(
            PACKAGES[format], found["version"], f"reads our {subject}", f"outputs differ by {difference:.1e}, relative"
        )
    assert max(found["differences"]) <= TOLERANCE


def test_vectors_are_read_and_equal(demo: Path, tmp_path: Path, table: Table) -> None:
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
    table.add("gguf", "of the main environment", "reads our control vector", "equal to the .safetensors")
