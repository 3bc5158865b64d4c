"""Layers whose evaluation is known in advance."""

from __future__ import annotations

import torch

from mxd.trainer.config import LayerConfig
from mxd.trainer.language_model.architecture import MlpShape
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.mxd import MxD
from mxd.trainer.layers.registry import build_layer


def config_of(shape: MlpShape, num_experts: int = 12, k: int = 1) -> LayerConfig:
    return LayerConfig(
        input_width=shape.input_width,
        hidden_width=shape.hidden_width,
        output_width=shape.output_width,
        num_experts=num_experts,
        k=k,
        activation=shape.activation,
        encoder=shape.encoder,
    )


def trap(language_model: LanguageModel, index: int) -> MxD:
    """The original weights with one always-active expert of ones: a perfect layer whose routing does nothing."""
    layer = build_layer(config_of(language_model.mlp_shape(index)))
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
