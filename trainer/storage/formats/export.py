"""Export of trained layers in the formats of other libraries, and of steering vectors.

Steering vectors are GGUF control vectors, one file per expert, or one safetensors file with ``expert.N`` [W]. llama.cpp
adds the tensor ``direction.L`` to the residual stream after block L, for L from 1 on. The vectors are what block L
itself adds because of an expert, so the place is the same.

Shapes: W width of the residual stream.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from mxd.trainer.errors import UserError
from mxd.trainer.layers.tensor_files import save_tensors
from mxd.trainer.storage.formats import LayerFormat, VectorFormat
from mxd.trainer.storage.formats.transcoders import write_circuit_tracer, write_saelens, write_sparsify
from mxd.trainer.storage.run import Run, check_empty_folder
from mxd.trainer.utils.files import atomic_directory


def export_layers(runs: Sequence[Run], format: LayerFormat, folder: Path) -> None:
    """Write the layers of some runs. With saelens, several runs get a folder each. Raises UserError if the folder is
    not empty, or the format has no such layers; no files are left."""
    check_empty_folder(folder)
    if len({run.config.layer for run in runs}) < len(runs):
        raise UserError("These runs are of the same layer. Export them one by one.")
    with atomic_directory(folder) as partial:
        if format == "circuit-tracer":
            write_circuit_tracer(runs, partial)
            return
        for run in runs:
            if format == "sparsify":
                write_sparsify(run, partial)
            else:
                target = partial if len(runs) == 1 else partial / f"layer_{run.config.layer}"
                target.mkdir(exist_ok=True)
                write_saelens(run, target)


GGUF_ARCHITECTURE = "controlvector"
VECTORS_FILE = "vectors.safetensors"


def check_vectors(run: Run, format: VectorFormat, experts: Sequence[int], folder: Path) -> None:
    """Check what can be checked before the language model is loaded. Raises UserError if there are no experts, the
    folder is not empty, or a control vector cannot act after the run's block."""
    if not experts:
        raise UserError("Steering vectors are written for chosen experts. Choose them with --experts.")
    if format == "gguf" and run.config.layer == 0:
        raise UserError("GGUF control vectors cannot act on layer 0. Use --format=vectors, or a run of a later layer.")
    check_empty_folder(folder)


def write_vectors(run: Run, format: VectorFormat, vectors: Mapping[int, Tensor], folder: Path) -> None:
    """Write vectors [W] by expert to a new folder. Raises UserError if the folder is not empty."""
    check_empty_folder(folder)
    with atomic_directory(folder) as partial:
        if format == "vectors":
            save_tensors({f"expert.{expert}": vector for expert, vector in vectors.items()}, partial / VECTORS_FILE)
            return
        from gguf import GGUFWriter

        from mxd.trainer.language_model.loading import load_outline

        model_type = str(load_outline(run.language_model_source).config.model_type)
        for expert, vector_W in vectors.items():
            writer = GGUFWriter(partial / f"expert-{expert}.gguf", GGUF_ARCHITECTURE)
            writer.add_string(f"{GGUF_ARCHITECTURE}.model_hint", model_type)
            writer.add_uint32(f"{GGUF_ARCHITECTURE}.layer_count", 1)
            writer.add_string("general.name", f"{run.name}, expert {expert}")
            writer.add_tensor(f"direction.{run.config.layer}", vector_W.numpy())
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
