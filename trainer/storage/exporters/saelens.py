"""SAELens 6: ``cfg.json`` and ``sae_weights.safetensors``.

Autoencoders and transcoders with thresholds are written as SAELens's own architectures. It has none for transcoders
with a top-k and for mixtures of decoders: these get the architecture ``mxd``, which ``saelens_layer`` registers.

Shapes: I input width, O output width, N experts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from mxd.trainer.layers.base import SparseLayer, save_tensors
from mxd.trainer.layers.transcoders import Autoencoder
from mxd.trainer.layers.variants import FixedThresholds
from mxd.trainer.storage.exporters.tensors import transcoder_tensors
from mxd.trainer.storage.importers.saelens import CONFIG, WEIGHTS
from mxd.trainer.storage.portable import portable
from mxd.trainer.storage.run import Run

ARCHITECTURE = "mxd"
"""Name under which ``saelens_layer`` registers its class."""
PREFIX = "layer."
"""Prefix of the tensors of that architecture."""
WRITTEN_FOR = "6.54.12"
"""SAELens version whose fields the config has."""


def write_saelens(run: Run, folder: Path) -> None:
    """Write a run's layer into an existing folder.

    Raises:
        UserError: an autoencoder has no flat gate.
    """
    layer = run.layer
    tensors, settings = _own(layer) if not isinstance(layer, FixedThresholds | Autoencoder) else _standard(run)
    save_tensors(tensors, folder / WEIGHTS)
    config = {**_common(run), **settings, "metadata": _metadata(run)}
    (folder / CONFIG).write_text(json.dumps(config, indent=1) + "\n", "utf-8")


def _own(layer: SparseLayer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors = {PREFIX + name: value.detach().contiguous() for name, value in layer.state_dict().items()}
    return tensors, {"architecture": ARCHITECTURE, "d_out": layer.config.output_width, "layer": _dumped(layer)}


def _dumped(layer: SparseLayer) -> dict[str, Any]:
    return layer.config.model_dump(mode="json")


def _standard(run: Run) -> tuple[dict[str, Tensor], dict[str, Any]]:
    transcoder = transcoder_tensors(run.layer, run.name, "saelens")
    tensors = {
        "W_enc": transcoder.gate_NI.T.contiguous(),
        "b_enc": transcoder.gate_bias_N,
        "W_dec": transcoder.direction_NO,
        "b_dec": transcoder.output_bias_O,
    }
    if transcoder.threshold_N is None:
        settings = {"k": run.layer.config.k, "rescale_acts_by_decoder_norm": False, "apply_b_dec_to_input": True}
        return tensors, {"architecture": "topk", **settings}
    tensors["threshold"] = transcoder.threshold_N
    if transcoder.skip_OI is not None:
        tensors["W_skip"] = transcoder.skip_OI
    named = "jumprelu_transcoder" if transcoder.skip_OI is None else "jumprelu_skip_transcoder"
    return tensors, {"architecture": named, "d_out": run.layer.config.output_width}


def _common(run: Run) -> dict[str, Any]:
    return {
        "d_in": run.layer.config.input_width,
        "d_sae": run.layer.config.num_experts,
        "dtype": "float32",
        "device": "cpu",
        "apply_b_dec_to_input": False,
        "normalize_activations": "none",
        "reshape_activations": "none",
    }


def _metadata(run: Run) -> dict[str, Any]:
    block, config = f"blocks.{run.config.layer}.mlp", portable(run.config, None)
    reads = "hook_in" if run.layer.reads == "mlp-input" else "hook_out"
    return {
        "sae_lens_version": WRITTEN_FOR,
        "model_name": config.language_model,
        "hook_name": f"{block}.{reads}",
        "hook_name_out": f"{block}.hook_out",
        "context_size": run.config.text.context_length,
        "dataset_path": config.text.dataset,
        "prepend_bos": run.config.text.start_token in (None, run.tokenizer.bos_token),
    }
