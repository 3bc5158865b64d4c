"""SAELens 6 transcoders: a folder with ``cfg.json`` and ``sae_weights.safetensors``.

    W_enc [I, N], b_enc [N]        gate
    W_dec [N, O], b_dec [O]        directions and output bias
    threshold [N]                  for JumpReLU
    W_skip [O, I]                  for skip transcoders

Its hooks are TransformerLens's, without folded norms unless ``metadata`` says so.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from mxd.trainer.errors import UserError
from mxd.trainer.storage.importers.base import ImportedLayer, Reads, SourceSettings, SourceTensors
from mxd.trainer.storage.importers.hook_names import input_norm, input_place, output_place, split_hook

CONFIG, WEIGHTS = "cfg.json", "sae_weights.safetensors"
SIZES = ("architecture", "d_in", "d_out", "d_sae", "dtype", "device", "metadata")
"""Settings that do not change the function; any other that is on may."""
PARTIAL = ("hook_head_index", "hook_head_index_out")
"""Settings in ``metadata`` of layers that read or write a part of the activations."""
ARCHITECTURES = ("transcoder", "skip_transcoder", "jumprelu_transcoder", "jumprelu_skip_transcoder")


def read_saelens(settings: SourceSettings, weights: Path) -> ImportedLayer:
    """Read the transcoder in a folder.

    Raises:
        UserError: it is not a supported transcoder.
    """
    where = settings.where
    architecture = settings.text("architecture", "standard")
    if architecture not in ARCHITECTURES:
        raise UserError(f"Unsupported architecture: {architecture} in {where}. Supported: {', '.join(ARCHITECTURES)}.")
    settings.check_known(SIZES)
    metadata = settings.part("metadata")
    for name in PARTIAL:
        if metadata.values.get(name) is not None:
            raise UserError(f"Unsupported setting: {name} = {metadata.values[name]!r} in {where}.")
    hook, out_hook = metadata.text("hook_name"), metadata.text("hook_name_out")
    (block, _), (out_block, _) = split_hook(hook), split_hook(out_hook)
    if block != out_block:
        raise UserError(
            f"Unsupported transcoder: it reads {hook} and writes {out_hook} in {where}. Both must be of one block."
        )
    folded = metadata.part("model_from_pretrained_kwargs").flag("fold_ln")
    place = input_place(hook)
    added = output_place(out_hook) == "added"
    converted = _tensors(SourceTensors.read(weights), architecture)
    # With folded norms the MLP of TransformerLens reads the norm's output before its weight, whatever the hook's name.
    plain: Reads = "mlp-input" if place == "mlp-input" else "norm"
    return ImportedLayer(
        method="jumprelu-skip-transcoder" if "skip" in architecture else "jumprelu-transcoder",
        k=len(converted["gate.bias"]),
        tensors=converted,
        reads="folded-norm" if folded else plain,
        layer=split_hook(hook)[0],
        weights=weights,
        version=metadata.text("sae_lens_version", "unknown"),
        text=metadata.values.get("dataset_path"),
        context=metadata.tokens("context_size") or None,
        after_post_norm=added,
        input_norm=input_norm(hook),
        start_tokens=("bos_token",) if metadata.flag("prepend_bos") else (),
    )


def _tensors(tensors: SourceTensors, architecture: str) -> dict[str, Tensor]:
    converted = {
        "gate.weight": tensors.pop("W_enc").T,
        "gate.bias": tensors.pop("b_enc"),
        "direction_NO": tensors.pop("W_dec"),
        "output_bias": tensors.pop("b_dec"),
    }
    converted["threshold_N"] = torch.zeros_like(converted["gate.bias"])
    if architecture.startswith("jumprelu"):
        converted["threshold_N"] = tensors.pop("threshold")
    if "skip" in architecture:
        converted["skip.weight"] = tensors.pop("W_skip")
    tensors.check_empty()
    return converted
