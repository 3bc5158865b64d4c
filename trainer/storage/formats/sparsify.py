"""EleutherAI's sparsify (``eai-sparsify`` 1.x): one folder per hookpoint, with ``cfg.json`` and ``sae.safetensors``.

    encoder.weight [N, I], encoder.bias [N]    gate
    W_dec [N, O], b_dec [O]                    directions and output bias
    W_skip [O, I]                              for skip transcoders

Its fork clt-training adds an MxD that mixes hidden units, in two branches with the same tensor names:

    W_mxd_in [H, I], b_mxd_enc [H]             encoder
    W_dec [N, H], W_mxd_out [O, H]             C and the decoder D
    b_mxd_dec [H], b_dec [O]                   branch ``mxd``: constant mixing and output bias
    b_dec [H], b_mxd_dec [O]                   branch ``molt``: the same, swapped
    post_enc [N]                               branch ``molt``: shift of active gates, which must be zero

The hookpoint is the name of the module that the layer replaces.
"""

from __future__ import annotations

import json
from pathlib import Path

from torch import Tensor

from mxd.trainer.config import Method
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.architecture import Architecture
from mxd.trainer.language_model.loading import load_outline
from mxd.trainer.layers.tensor_files import save_tensors
from mxd.trainer.storage.formats.base import (
    ImportedLayer,
    SourceSettings,
    SourceTensors,
    layer_of_module,
    transcoder_tensors,
)
from mxd.trainer.storage.run import Run

CONFIG, WEIGHTS = "cfg.json", "sae.safetensors"
UNSUPPORTED = ("embed_skip", "gram_lookup", "signed", "normalize_io", "post_encoder_scale", "molt_n", "n_targets")
"""Settings of other inputs, negative activations, scales, MOLT and several outputs."""
GATE = {"gate.weight": "encoder.weight", "gate.bias": "encoder.bias"}
DECODER = {"direction_NO": "W_dec", "output_bias": "b_dec"}
WRITTEN = GATE | DECODER | {"skip.weight": "W_skip", "threshold_N": "threshold"}
UNUSED = ("W_mxd_in", "W_mxd_out", "b_mxd_enc", "b_mxd_dec")
"""Tensors that clt-training's branch ``molt`` also writes for a transcoder."""


def read_sparsify(settings: SourceSettings, weights: Path, part: str) -> ImportedLayer:
    """Read the transcoder of a hookpoint. Raises UserError if it is not a supported transcoder."""
    where = settings.where
    if not settings.flag("transcode"):
        raise UserError(f"{where} is an autoencoder. Only transcoders can be imported.")
    if settings.text("activation", "topk") != "topk":
        raise UserError(f"Unsupported activation: {settings.text('activation')} in {where}. Supported: topk.")
    for name in UNSUPPORTED:
        if settings.values.get(name):
            raise UserError(f"Unsupported setting: {name} in {where}.")
    layer = layer_of_module(part)
    if layer is None and part:
        raise UserError(f"Unsupported hookpoint: {part}. It must be an MLP such as layers.3.mlp.")
    tensors = SourceTensors.read(weights)
    gate = tensors.under(GATE)
    method: Method = "transcoder"
    if settings.flag("mxd") or settings.tokens("mxd_h") > 0:
        method, decoder = "hidden-mxd", _mixture(settings, tensors)
    else:
        decoder = tensors.under(DECODER)
        tensors.ignore(*UNUSED)
        if (skip := tensors.pop_optional("W_skip")) is not None:
            method, decoder = "skip-transcoder", decoder | {"skip.weight": skip}
    shift = tensors.pop_optional("post_enc")
    if shift is not None and bool(shift.any()):
        raise UserError(f"Unsupported tensor: post_enc in {tensors.where} is not zero.")
    tensors.check_empty()
    return ImportedLayer(
        method=method,
        k=settings.whole("k", 32),
        tensors=gate | decoder,
        reads="mlp-input",
        layer=layer,
        weights=weights,
        start_tokens=("eos_token",),  # its chunk_and_tokenize puts it before each document
    )


def _mixture(settings: SourceSettings, tensors: SourceTensors) -> dict[str, Tensor]:
    activation = settings.text("mxd_encoder_activation", "none")
    if activation != "none":
        raise UserError(f"Unsupported mxd_encoder_activation: {activation} in {settings.where}. Supported: none.")
    if settings.flag("skip_connection"):
        raise UserError(f"Unsupported setting: skip_connection of an MxD in {settings.where}.")
    output_bias, mixing_bias = ("b_dec", "b_mxd_dec") if settings.flag("mxd") else ("b_mxd_dec", "b_dec")
    encoder = {"encoder.weight": "W_mxd_in", "encoder.bias": "b_mxd_enc", "mixing_bias_H": mixing_bias}
    return tensors.under(encoder | {"scaling_NO": "W_dec", "decoder.weight": "W_mxd_out", "output_bias": output_bias})


def write_sparsify(run: Run, folder: Path) -> None:
    """Write a TopK transcoder or autoencoder to the folder of its hookpoint, such as ``layers.3.mlp``. Raises UserError
    if sparsify has no such layer."""
    tensors = transcoder_tensors(run, "sparsify", WRITTEN)
    layer = run.layer.config
    if "threshold" in tensors:
        raise UserError(f"sparsify has no layers with thresholds, as '{run.name}' has. Use --format=saelens.")
    if layer.input_width != layer.output_width:
        raise UserError(
            f"sparsify needs equal widths, but '{run.name}' maps {layer.input_width} to {layer.output_width}."
        )
    target = folder / hookpoint(run)
    target.mkdir()
    save_tensors(tensors, target / WEIGHTS)
    settings = {
        "activation": "topk",
        "expansion_factor": max(1, layer.num_experts // layer.input_width),
        "normalize_decoder": False,
        "num_latents": layer.num_experts,
        "k": layer.k,
        "multi_topk": False,
        "skip_connection": "W_skip" in tensors,
        "transcode": run.layer.reads == "mlp-input",
        "d_in": layer.input_width,
    }
    (target / CONFIG).write_text(json.dumps(settings, indent=1) + "\n", "utf-8")


def hookpoint(run: Run) -> str:
    """Return the name of the run's MLP in the base model of its language model. Raises UserError if the MLP is not a
    single module."""
    module = load_outline(run.language_model_source)
    architecture = Architecture(module, run.language_model_source)
    first, last = architecture.mlp_names(run.config.layer)
    if first != last:
        raise UserError(f"The MLP of {run.config.language_model} is not a single module, which sparsify needs.")
    block = architecture.block(run.config.layer)
    return next(f"{name}.{first}" for name, other in module.base_model.named_modules() if other is block)
