"""circuit-tracer's sets of transcoders, one a layer: a folder with ``config.yaml`` and ``layer_N.safetensors``.

    W_enc [N, I], b_enc [N]                 gate
    W_dec [N, O], b_dec [O]                 directions and output bias
    activation_function.threshold [N]       of a JumpReLU
    W_skip [O, I]                           of skip transcoders

``activation: topk`` with ``k`` in the config makes them TopK; without thresholds they are ReLU. Its hooks are
TransformerLens's, without folding. Written against what circuit-tracer reads of July 2025 and later (0.1 to 0.4).
"""

from __future__ import annotations

from pathlib import Path

import torch

from trainer.config import Method
from trainer.errors import UserError
from trainer.importing.found import Found, Settings, Tensors
from trainer.importing.hooks import input_place, output_place

CONFIG = "config.yaml"
THRESHOLDS = ("activation_function.threshold", "threshold")


def check_set(settings: Settings) -> None:
    """See that a config is of a set of transcoders whose files are beside it.

    Raises:
        UserError: it is not.
    """
    kind = settings.text("model_kind", "transcoder_set")
    if kind != "transcoder_set":
        raise UserError(f"{settings.where} is of a {kind}; only a transcoder_set, one a layer, can be imported.")
    if settings.values.get("transcoders"):
        raise UserError(
            f"{settings.where} names files of other repositories; download them, save them as layer_N.safetensors "
            "beside it, and take the list out."
        )


def read_circuit_tracer(settings: Settings, weights: Path, layer: int) -> Found:
    """The transcoder of one layer.

    Raises:
        UserError: it cannot stand for an MLP.
    """
    check_set(settings)
    place = input_place(settings.text("feature_input_hook"))
    added = output_place(settings.text("feature_output_hook")) == "added"
    tensors = Tensors.read(weights)
    found = {
        "gate.weight": tensors.take("W_enc"),
        "gate.bias": tensors.take("b_enc"),
        "direction_NO": tensors.take("W_dec"),
        "output_bias": tensors.take("b_dec"),
    }
    skip = tensors.take_if_any("W_skip")
    if skip is not None:
        found["skip.weight"] = skip
    top_k = settings.values.get("activation") == "topk"
    if not top_k:
        named = [value for name in THRESHOLDS if (value := tensors.take_if_any(name)) is not None]
        found["threshold_N"] = named[0].reshape(-1) if named else torch.zeros_like(found["gate.bias"])
    tensors.end()
    return Found(
        method=_method(top_k, skip is not None),
        k=settings.whole("k") if top_k else len(found["gate.bias"]),
        tensors=found,
        reads="mlp-input" if place == "mlp-input" else "norm",
        layer=layer,
        weights=weights,
        after_post_norm=added,
    )


def _method(top_k: bool, skip: bool) -> Method:
    if top_k:
        return "skip-transcoder" if skip else "transcoder"
    return "jumprelu-skip-transcoder" if skip else "jumprelu-transcoder"
