"""SAELens 6 transcoders: a folder with ``cfg.json`` and ``sae_weights.safetensors``.

    W_enc [I, N], b_enc [N]        gate
    W_dec [N, O], b_dec [O]        directions and output bias
    threshold [N]                  of a JumpReLU
    W_skip [O, I]                  of a skip transcoder

Its hooks are TransformerLens's, on a language model that is loaded without folding unless ``metadata`` says so.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from trainer.errors import UserError
from trainer.importing.found import Found, Reads, Settings, Tensors
from trainer.importing.hooks import input_place, output_place, split

CONFIG, WEIGHTS = "cfg.json", "sae_weights.safetensors"
ARCHITECTURES = ("transcoder", "skip_transcoder", "jumprelu_transcoder", "jumprelu_skip_transcoder")


def read_saelens(settings: Settings, weights: Path) -> Found:
    """The transcoder of one folder.

    Raises:
        UserError: it is no transcoder, or of a kind that no method here is.
    """
    where = settings.where
    architecture = settings.text("architecture", "standard")
    if architecture not in ARCHITECTURES:
        raise UserError(f"{where} is of a {architecture}; of SAELens {', '.join(ARCHITECTURES)} can be imported.")
    for name, neutral in (("normalize_activations", "none"), ("reshape_activations", "none")):
        if settings.values.get(name) not in (None, neutral):
            raise UserError(f"{where} has {name} {settings.values[name]}, which no method here has.")
    metadata = settings.part("metadata")
    hook, out_hook = metadata.text("hook_name"), metadata.text("hook_name_out")
    folded = metadata.part("model_from_pretrained_kwargs").flag("fold_ln")
    place = input_place(hook)
    added = output_place(out_hook) == "added"
    found = _tensors(Tensors.read(weights), architecture)
    unfolded: Reads = "folded-norm" if folded else "norm"
    return Found(
        method="jumprelu-skip-transcoder" if "skip" in architecture else "jumprelu-transcoder",
        k=len(found["gate.bias"]),
        tensors=found,
        reads="mlp-input" if place == "mlp-input" else unfolded,
        layer=split(hook)[0],
        weights=weights,
        version=metadata.text("sae_lens_version", "unknown"),
        text=metadata.values.get("dataset_path"),
        context=metadata.tokens("context_size") or None,
        after_post_norm=added,
    )


def _tensors(tensors: Tensors, architecture: str) -> dict[str, Tensor]:
    found = {
        "gate.weight": tensors.take("W_enc").T,
        "gate.bias": tensors.take("b_enc"),
        "direction_NO": tensors.take("W_dec"),
        "output_bias": tensors.take("b_dec"),
    }
    found["threshold_N"] = torch.zeros_like(found["gate.bias"])
    if architecture.startswith("jumprelu"):
        found["threshold_N"] = tensors.take("threshold")
    if "skip" in architecture:
        found["skip.weight"] = tensors.take("W_skip")
    tensors.end()
    return found
