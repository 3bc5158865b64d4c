"""Tensors of a transcoder or autoencoder under neutral names, for formats that have no mixtures of decoders.

Shapes: I input width, O output width, N experts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mxd.trainer.errors import UserError
from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.layers.transcoders import Autoencoder, SkipTranscoder, Transcoder
from mxd.trainer.layers.variants import FixedThresholds


@dataclass(frozen=True, eq=False)
class TranscoderTensors:
    """Weights of a layer whose experts write fixed directions."""

    gate_NI: Tensor
    gate_bias_N: Tensor
    direction_NO: Tensor
    output_bias_O: Tensor
    skip_OI: Tensor | None
    threshold_N: Tensor | None
    """Thresholds of a JumpReLU; None for a TopK."""
    autoencodes: bool
    """True if the layer reads the MLP's output, minus the output bias."""


def transcoder_tensors(layer: SparseLayer, run: str, format: str) -> TranscoderTensors:
    """Return the weights of a transcoder or autoencoder, as contiguous float32 tensors.

    Raises:
        UserError: the layer is of another kind.
    """
    if not isinstance(layer, Transcoder):
        raise UserError(
            f"The experts of '{run}' ({layer.method}) are matrices, which the format {format} cannot hold. "
            "Use --format=saelens."
        )
    threshold_N = layer.threshold_N.contiguous() if isinstance(layer, FixedThresholds) else None
    return TranscoderTensors(
        gate_NI=layer.gate.rows(torch.arange(layer.config.num_experts)).contiguous(),
        gate_bias_N=layer.gate.bias.detach().contiguous(),
        direction_NO=layer.direction_NO.detach().contiguous(),
        output_bias_O=layer.output_bias.detach().contiguous(),
        skip_OI=layer.skip.weight.detach().contiguous() if isinstance(layer, SkipTranscoder) else None,
        threshold_N=threshold_N,
        autoencodes=isinstance(layer, Autoencoder),
    )
