"""circuit-tracer's transcoder sets: ``config.yaml`` and one ``layer_N.safetensors`` per run. See the importer.

Its loader needs every layer from 0 on, and knows ReLU and JumpReLU. For a TopK transcoder, the config has
``activation`` and ``k``, which the loader ignores: set ``activation_function`` of the loaded transcoder to its TopK,
followed by a ReLU.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from mxd.trainer.errors import UserError
from mxd.trainer.layers.base import save_tensors
from mxd.trainer.storage.exporters.tensors import TranscoderTensors, transcoder_tensors
from mxd.trainer.storage.importers.circuit_tracer import CONFIG, THRESHOLDS
from mxd.trainer.storage.portable import portable
from mxd.trainer.storage.run import Run


def write_circuit_tracer(runs: Sequence[Run], folder: Path) -> None:
    """Write transcoders of different layers as one set.

    Raises:
        UserError: circuit-tracer has no such layers, or the runs do not form a set.
    """
    tensors_of_layer = {run.config.layer: transcoder_tensors(run.layer, run.name, "circuit-tracer") for run in runs}
    if len(tensors_of_layer) < len(runs) or len({run.config.language_model for run in runs}) > 1:
        raise UserError("A transcoder set has one run per layer of one language model.")
    if any(tensors.autoencodes for tensors in tensors_of_layer.values()):
        raise UserError("circuit-tracer has no autoencoders. Use --format=saelens or sparsify.")
    for layer, tensors in tensors_of_layer.items():
        save_tensors(_named(tensors), folder / f"layer_{layer}.safetensors")
    (folder / CONFIG).write_text(yaml.safe_dump(_settings(runs), sort_keys=False), "utf-8")


def _named(tensors: TranscoderTensors) -> dict[str, Any]:
    optional = {THRESHOLDS[0]: tensors.threshold_N, "W_skip": tensors.skip_OI}
    return {
        "W_enc": tensors.gate_NI,
        "b_enc": tensors.gate_bias_N,
        "W_dec": tensors.direction_NO,
        "b_dec": tensors.output_bias_O,
        **{name: tensor for name, tensor in optional.items() if tensor is not None},
    }


def _settings(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the config.

    Raises:
        UserError: the runs have different activations.
    """
    ks = {None if run.config.method.startswith("jumprelu") else run.layer.config.k for run in runs}
    if len(ks) > 1:
        raise UserError("A transcoder set has one activation, but these runs differ in K or thresholds.")
    k = ks.pop()
    return {
        "model_name": portable(runs[0].config, None).language_model,
        "model_kind": "transcoder_set",
        "feature_input_hook": "mlp.hook_in",
        "feature_output_hook": "mlp.hook_out",
        **({} if k is None else {"activation": "topk", "k": k}),
    }
