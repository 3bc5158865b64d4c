"""EleutherAI's sparsify: ``cfg.json`` and ``sae.safetensors`` in one folder per hookpoint. See the importer."""

from __future__ import annotations

import json
from pathlib import Path

from mxd.trainer.errors import UserError
from mxd.trainer.language_model.architecture import Architecture
from mxd.trainer.language_model.loading import load_outline
from mxd.trainer.layers.base import save_tensors
from mxd.trainer.storage.exporters.tensors import transcoder_tensors
from mxd.trainer.storage.importers.sparsify import CONFIG, WEIGHTS
from mxd.trainer.storage.run import Run


def write_sparsify(run: Run, folder: Path) -> None:
    """Write a TopK transcoder or autoencoder to the folder of its hookpoint, such as ``layers.3.mlp``.

    Raises:
        UserError: sparsify has no such layer.
    """
    transcoder = transcoder_tensors(run.layer, run.name, "sparsify")
    layer = run.layer.config
    if transcoder.threshold_N is not None:
        raise UserError(f"sparsify has no layers with thresholds, as '{run.name}' has. Use --format=saelens.")
    if layer.input_width != layer.output_width:
        raise UserError(
            f"sparsify needs equal widths, but '{run.name}' maps {layer.input_width} to {layer.output_width}."
        )
    target = folder / hookpoint(run)
    target.mkdir()
    tensors = {
        "encoder.weight": transcoder.gate_NI,
        "encoder.bias": transcoder.gate_bias_N,
        "W_dec": transcoder.direction_NO,
        "b_dec": transcoder.output_bias_O,
    }
    if transcoder.skip_OI is not None:
        tensors["W_skip"] = transcoder.skip_OI
    save_tensors(tensors, target / WEIGHTS)
    settings = {
        "activation": "topk",
        "expansion_factor": max(1, layer.num_experts // layer.input_width),
        "normalize_decoder": False,
        "num_latents": layer.num_experts,
        "k": layer.k,
        "multi_topk": False,
        "skip_connection": transcoder.skip_OI is not None,
        "transcode": not transcoder.autoencodes,
        "d_in": layer.input_width,
    }
    (target / CONFIG).write_text(json.dumps(settings, indent=1) + "\n", "utf-8")


def hookpoint(run: Run) -> str:
    """Return the name of the run's MLP in the base model of its language model.

    Raises:
        UserError: the MLP is not a single module.
    """
    module = load_outline(run.language_model_source)
    architecture = Architecture(module, run.language_model_source)
    first, last = architecture.mlp_names(run.config.layer)
    if first != last:
        raise UserError(f"The MLP of {run.config.language_model} is not a single module, which sparsify needs.")
    block = architecture.block(run.config.layer)
    return next(f"{name}.{first}" for name, other in module.base_model.named_modules() if other is block)
