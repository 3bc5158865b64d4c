"""EleutherAI's sparsify (``eai-sparsify`` 1.x): a folder for each hookpoint, with ``cfg.json`` and ``sae.safetensors``.

    encoder.weight [N, I], encoder.bias [N]    gate
    W_dec [N, O], b_dec [O]                    directions and output bias
    W_skip [O, I]                              of a skip transcoder

The hookpoint is the name of a module, whose input is read and whose output is written.
"""

from __future__ import annotations

from pathlib import Path

from trainer.errors import UserError
from trainer.importing.found import Found, Settings, Tensors
from trainer.importing.hooks import layer_of_module

CONFIG, WEIGHTS = "cfg.json", "sae.safetensors"
OTHER_INPUTS = ("embed_skip", "gram_lookup", "signed")
"""Settings under which the layer needs more than the MLP's input, or negative coefficients."""


def read_sparsify(settings: Settings, weights: Path, part: str) -> Found:
    """The transcoder of one hookpoint.

    Raises:
        UserError: it is an autoencoder, or of a kind that no method here is.
    """
    where = settings.where
    if not settings.flag("transcode"):
        raise UserError(f"{where} is of an autoencoder; only transcoders can stand for an MLP.")
    if settings.text("activation", "topk") != "topk":
        raise UserError(f"{where} has the activation {settings.text('activation')}; only topk can be imported.")
    for name in OTHER_INPUTS:
        if settings.flag(name):
            raise UserError(f"{where} has {name}, which no method here has.")
    layer = layer_of_module(part)
    if layer is None and part:
        raise UserError(f"The hookpoint {part} is no MLP; only those such as layers.3.mlp can be imported.")
    tensors = Tensors.read(weights)
    found = {
        "gate.weight": tensors.take("encoder.weight"),
        "gate.bias": tensors.take("encoder.bias"),
        "direction_NO": tensors.take("W_dec"),
        "output_bias": tensors.take("b_dec"),
    }
    skip = tensors.take_if_any("W_skip")
    if skip is not None:
        found["skip.weight"] = skip
    tensors.end()
    return Found(
        method="transcoder" if skip is None else "skip-transcoder",
        k=settings.whole("k", 32),
        tensors=found,
        reads="mlp-input",
        layer=layer,
        weights=weights,
    )
