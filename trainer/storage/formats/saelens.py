"""SAELens 6 transcoders: a folder with ``cfg.json`` and ``sae_weights.safetensors``.

    W_enc [I, N], b_enc [N]        gate
    W_dec [N, O], b_dec [O]        directions and output bias
    threshold [N]                  for JumpReLU
    W_skip [O, I]                  for skip transcoders

Its hooks are TransformerLens's, without folded norms unless ``metadata`` says so.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from mxd.trainer.errors import UserError
from mxd.trainer.layers.tensor_files import save_tensors
from mxd.trainer.layers.transcoders import Autoencoder
from mxd.trainer.layers.variants import FixedThresholds
from mxd.trainer.storage.formats.base import (
    ImportedLayer,
    Reads,
    SourceSettings,
    SourceTensors,
    input_norm,
    input_place,
    output_place,
    split_hook,
    transcoder_tensors,
)
from mxd.trainer.storage.run import Run, portable

CONFIG, WEIGHTS = "cfg.json", "sae_weights.safetensors"
SIZES = ("architecture", "d_in", "d_out", "d_sae", "dtype", "device", "metadata")
"""Settings that do not change the function; any other that is on may."""
PARTIAL = ("hook_head_index", "hook_head_index_out")
"""Settings in ``metadata`` of layers that read or write a part of the activations."""
ARCHITECTURES = ("transcoder", "skip_transcoder", "jumprelu_transcoder", "jumprelu_skip_transcoder")
NAMES = {"gate.weight": "W_enc.T", "gate.bias": "b_enc", "direction_NO": "W_dec", "output_bias": "b_dec"}
WRITTEN = NAMES | {"threshold_N": "threshold", "skip.weight": "W_skip"}


def read_saelens(settings: SourceSettings, weights: Path) -> ImportedLayer:
    """Read the transcoder in a folder. Raises UserError if it is not a supported transcoder."""
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
    tensors = SourceTensors.read(weights)
    converted = tensors.under(NAMES)
    has_thresholds = architecture.startswith("jumprelu")
    converted["threshold_N"] = tensors.pop("threshold") if has_thresholds else torch.zeros_like(converted["gate.bias"])
    if "skip" in architecture:
        converted["skip.weight"] = tensors.pop("W_skip")
    tensors.check_empty()
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
        writes_addition=added,
        input_norm=input_norm(hook),
        start_tokens=("bos_token",) if metadata.flag("prepend_bos") else (),
    )


ARCHITECTURE = "mxd"
"""Name under which ``saelens_layer`` registers its class."""
PREFIX = "layer."
WRITTEN_FOR = "6.54.12"
"""SAELens version whose fields the config has."""


def write_saelens(run: Run, folder: Path) -> None:
    layer, config = run.layer, portable(run.config, None)
    settings: dict[str, Any]
    if isinstance(layer, FixedThresholds | Autoencoder):
        tensors = transcoder_tensors(run, "saelens", WRITTEN)  # SAELens has these layers, too
        if isinstance(layer, Autoencoder):
            settings = {"architecture": "topk", "k": layer.config.k, "rescale_acts_by_decoder_norm": False}
            settings["apply_b_dec_to_input"] = True
        else:
            kind = "jumprelu_skip_transcoder" if "W_skip" in tensors else "jumprelu_transcoder"
            settings = {"architecture": kind, "d_out": layer.config.output_width}
    else:
        tensors = {PREFIX + name: value.detach().contiguous() for name, value in layer.state_dict().items()}
        own = layer.config.model_dump(mode="json")
        settings = {"architecture": ARCHITECTURE, "d_out": layer.config.output_width, "layer": own}
    save_tensors(tensors, folder / WEIGHTS)
    block = f"blocks.{run.config.layer}.mlp"
    metadata = {
        "sae_lens_version": WRITTEN_FOR,
        "model_name": config.language_model,
        "hook_name": f"{block}.hook_in" if layer.reads == "mlp-input" else f"{block}.hook_out",
        "hook_name_out": f"{block}.hook_out",
        "context_size": run.config.text.context_length,
        "dataset_path": config.text.dataset,
        "prepend_bos": run.config.text.start_token in (None, run.tokenizer.bos_token),
    }
    common = {
        "d_in": layer.config.input_width,
        "d_sae": layer.config.num_experts,
        "dtype": "float32",
        "device": "cpu",
        "apply_b_dec_to_input": False,
        "normalize_activations": "none",
        "reshape_activations": "none",
    }
    text = json.dumps({**common, **settings, "metadata": metadata}, indent=1) + "\n"
    (folder / CONFIG).write_text(text, "utf-8")
