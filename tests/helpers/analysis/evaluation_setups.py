"""Layers whose evaluation is known in advance."""

import torch

from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.mxd import MxD
from mxd.trainer.layers.registry import build_layer
from tests.helpers.layers import layer_config


def trap(language_model: LanguageModel, index: int) -> MxD:
    """The original weights with one always-active expert of ones: a perfect layer whose routing does nothing."""
    layer = build_layer(layer_config(num_experts=12, k=1, **vars(language_model.mlp_shape(index))))
    assert isinstance(layer, MxD) and layer.encoder_gate is not None
    weights = language_model.encoder_weights(index)
    _, writer = language_model.architecture.matrices(index)
    assert weights.gate_weight_HI is not None and weights.gate_bias_H is not None
    with torch.no_grad():
        layer.encoder.weight.copy_(weights.weight_HI)
        layer.encoder.bias.copy_(weights.bias_H)
        layer.encoder_gate.weight.copy_(weights.gate_weight_HI)
        layer.encoder_gate.bias.copy_(weights.gate_bias_H)
        layer.decoder.weight.copy_(writer.weight)  # type: ignore[arg-type]
        layer.gate.weight.zero_()
        layer.gate.bias.fill_(-1.0)
        layer.gate.bias[0] = 1.0
        layer.scaling_NO[0] = 1.0
    return layer
