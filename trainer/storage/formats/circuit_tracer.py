"""circuit-tracer's transcoder sets, one per layer: a folder with ``config.yaml`` and ``layer_N.safetensors``.

    W_enc [N, I], b_enc [N]                 gate
    W_dec [N, O], b_dec [O]                 directions and output bias
    activation_function.threshold [N]       for JumpReLU
    W_skip [O, I]                           for skip transcoders

With ``activation: topk`` and ``k`` they are TopK; without thresholds they are ReLU. The hooks are TransformerLens's,
without folded norms. Supports the format of circuit-tracer 0.1 to 0.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import yaml

from mxd.trainer.errors import UserError
from mxd.trainer.layers.tensor_files import save_tensors
from mxd.trainer.storage.formats.base import (
    ImportedLayer,
    SourceSettings,
    SourceTensors,
    input_place,
    output_place,
    split_hook,
    transcoder_tensors,
)
from mxd.trainer.storage.run import Run, portable

CONFIG = "config.yaml"
HOOKS = ("feature_input_hook", "feature_output_hook")
KNOWN = ("model_name", "model_kind", *HOOKS, "scan", "repo_id", "revision", "transcoders", "activation", "k")
"""Settings that are read here or do not change the function; any other that is on may."""
THRESHOLDS = ("activation_function.threshold", "threshold")
NAMES = {"gate.weight": "W_enc", "gate.bias": "b_enc", "direction_NO": "W_dec", "output_bias": "b_dec"}
WRITTEN = NAMES | {"threshold_N": THRESHOLDS[0], "skip.weight": "W_skip"}


def read_circuit_tracer(settings: SourceSettings, weights: Path, layer: int) -> ImportedLayer:
    """Read the transcoder of one layer. Raises UserError if it is not supported."""
    kind = settings.text("model_kind", "transcoder_set")
    if kind != "transcoder_set":
        raise UserError(f"Unsupported model_kind: {kind} in {settings.where}. Supported: transcoder_set.")
    if settings.values.get("transcoders"):
        raise UserError(
            f"{settings.where} refers to files of other repos. Download them as layer_N.safetensors to its folder, and "
            "remove the list."
        )
    settings.check_known(KNOWN)
    if settings.values.get("activation") not in (None, "relu", "jumprelu", "topk"):
        raise UserError(
            f"Unsupported activation: {settings.values['activation']} in {settings.where}. Supported: relu, jumprelu, "
            "topk."
        )
    hooks = [settings.text(name) for name in HOOKS]
    if any(block not in (None, layer) for block in (split_hook(hook)[0] for hook in hooks)):
        raise UserError(
            f"Unsupported hooks: {' and '.join(hooks)} in {settings.where}. Both must be of the layer's own block, "
            f"{layer}."
        )
    place, added = input_place(hooks[0]), output_place(hooks[1]) == "added"
    tensors = SourceTensors.read(weights)
    converted = tensors.under(NAMES)
    skip = tensors.pop_optional("W_skip")
    if skip is not None:
        converted["skip.weight"] = skip
    top_k = settings.values.get("activation") == "topk"
    if not top_k:
        named = [value for name in THRESHOLDS if (value := tensors.pop_optional(name)) is not None]
        converted["threshold_N"] = named[0].reshape(-1) if named else torch.zeros_like(converted["gate.bias"])
    tensors.check_empty()
    return ImportedLayer(
        method=f"{'' if top_k else 'jumprelu-'}{'' if skip is None else 'skip-'}transcoder",
        k=settings.whole("k") if top_k else len(converted["gate.bias"]),
        tensors=converted,
        reads="mlp-input" if place == "mlp-input" else "norm",
        layer=layer,
        weights=weights,
        writes_addition=added,
        start_tokens=("bos_token", "pad_token", "eos_token"),  # as its ReplacementModel.ensure_tokenized
    )


def write_circuit_tracer(runs: Sequence[Run], folder: Path) -> None:
    """Write transcoders of different layers as one set. Raises UserError if circuit-tracer has no such layers, or the
    runs do not form a set."""
    tensors_of_layer = {run.config.layer: transcoder_tensors(run, "circuit-tracer", WRITTEN) for run in runs}
    if len(tensors_of_layer) < len(runs) or len({run.config.language_model for run in runs}) > 1:
        raise UserError("A transcoder set has one run per layer of one language model.")
    if any(run.layer.reads == "mlp-output" for run in runs):
        raise UserError("circuit-tracer has no autoencoders. Use --format=saelens or sparsify.")
    for layer, tensors in tensors_of_layer.items():
        save_tensors(tensors, folder / f"layer_{layer}.safetensors")
    ks = {None if run.config.method.startswith("jumprelu") else run.layer.config.k for run in runs}
    if len(ks) > 1:
        raise UserError("A transcoder set has one activation, but these runs differ in K or thresholds.")
    k = ks.pop()
    settings = {
        "model_name": portable(runs[0].config, None).language_model,
        "model_kind": "transcoder_set",
        "feature_input_hook": "mlp.hook_in",
        "feature_output_hook": "mlp.hook_out",
        **({} if k is None else {"activation": "topk", "k": k}),
    }
    (folder / CONFIG).write_text(yaml.safe_dump(settings, sort_keys=False), "utf-8")
