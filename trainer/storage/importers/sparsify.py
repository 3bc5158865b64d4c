"""EleutherAI's sparsify (``eai-sparsify`` 1.x): one folder per hookpoint, with ``cfg.json`` and ``sae.safetensors``.

    encoder.weight [N, I], encoder.bias [N]    gate
    W_dec [N, O], b_dec [O]                    directions and output bias
    W_skip [O, I]                              for skip transcoders

The hookpoint is the name of the module that the layer replaces.
"""

from __future__ import annotations

from pathlib import Path

from mxd.trainer.errors import UserError
from mxd.trainer.storage.importers.base import ImportedLayer, SourceSettings, SourceTensors
from mxd.trainer.storage.importers.hook_names import layer_of_module

CONFIG, WEIGHTS = "cfg.json", "sae.safetensors"
OTHER_INPUTS = ("embed_skip", "gram_lookup", "signed")
"""Settings that need other inputs or negative activations, which are not supported."""


def read_sparsify(settings: SourceSettings, weights: Path, part: str) -> ImportedLayer:
    """Read the transcoder of a hookpoint.

    Raises:
        UserError: it is not a supported transcoder.
    """
    where = settings.where
    if not settings.flag("transcode"):
        raise UserError(f"{where} is an autoencoder. Only transcoders can be imported.")
    if settings.text("activation", "topk") != "topk":
        raise UserError(f"Unsupported activation: {settings.text('activation')} in {where}. Supported: topk.")
    for name in OTHER_INPUTS:
        if settings.flag(name):
            raise UserError(f"Unsupported setting: {name} in {where}.")
    layer = layer_of_module(part)
    if layer is None and part:
        raise UserError(f"Unsupported hookpoint: {part}. It must be an MLP such as layers.3.mlp.")
    tensors = SourceTensors.read(weights)
    converted = {
        "gate.weight": tensors.pop("encoder.weight"),
        "gate.bias": tensors.pop("encoder.bias"),
        "direction_NO": tensors.pop("W_dec"),
        "output_bias": tensors.pop("b_dec"),
    }
    skip = tensors.pop_optional("W_skip")
    if skip is not None:
        converted["skip.weight"] = skip
    tensors.check_empty()
    return ImportedLayer(
        method="transcoder" if skip is None else "skip-transcoder",
        k=settings.whole("k", 32),
        tensors=converted,
        reads="mlp-input",
        layer=layer,
        weights=weights,
        start_tokens=("eos_token",),  # its chunk_and_tokenize puts it before each document
    )
