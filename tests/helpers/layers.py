"""Small layers for tests, and trainers of them."""

from typing import Any

import torch
from torch import Tensor

from mxd.trainer.config import LayerConfig, Method, OptimizerConfig, TextConfig, TrainConfig
from mxd.trainer.config.layer import method_traits
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.base import Routing, SparseLayer
from mxd.trainer.layers.mxd import MxD
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.training.layer_trainer import LayerTrainer

TOKENS, WIDTH, EXPERTS, STEPS = 32, 12, 40, 9
"""Sizes of ``layer_trainer``."""


def layer_config(method: Method = "mxd", widths: tuple[int, int, int] = (12, 20, 10), **changes: Any) -> LayerConfig:
    """Settings of a layer of any method: 33 experts, 5 of them active; an autoencoder reads what it writes."""
    traits = method_traits(method)
    settings: dict[str, Any] = {
        "method": method,
        "input_width": widths[2] if method == "autoencoder" else widths[0],
        "hidden_width": widths[1],
        "output_width": widths[2],
        "num_experts": 33,
        "k": 33 if traits.status == "imported" else 5,
        "activation": "silu",
        "encoder": "glu",
        "rank": 3 if traits.rank else None,
    }
    return LayerConfig(**(settings | changes))


def routing_to(indices: list[list[int]]) -> Routing:
    """Activations of 1 of these experts."""
    indices_TK = torch.tensor(indices)
    return Routing(torch.ones(indices_TK.shape), indices_TK)


def random_layer(method: Method = "mxd", seed: int = 0, **changes: Any) -> SparseLayer:
    """A layer with random parameters, the decoder included; ``changes`` are those of ``layer_config``."""
    layer = build_layer(layer_config(method, **changes))
    generator = torch.Generator().manual_seed(seed)
    for parameter in layer.parameters():
        parameter.data.normal_(0, 0.5, generator=generator)
    return layer


def layer_trainer(
    method: Method = "mxd", min_k: int | None = None, lr: float | Tensor = 0.0, **settings: Any
) -> LayerTrainer:
    torch.manual_seed(0)
    traits = method_traits(method)
    layer = build_layer(
        layer_config(
            method,
            (WIDTH, 20, WIDTH),
            num_experts=EXPERTS,
            k=4,
            activation="gelu",
            encoder="mlp",
            min_k=min_k,
            mixing=traits.mixing,
        )
    )
    config = TrainConfig(
        name="small",
        language_model="none",
        layer=0,
        method=method,
        text=TextConfig(dataset="none"),
        tokens=STEPS * TOKENS,
        init="random",
        min_k=min_k,
        **({"optimizer": OptimizerConfig(batch_tokens=TOKENS)} | settings),
    )
    optimizer = torch.optim.AdamW(layer.parameters(), lr=lr, weight_decay=0.0, fused=True)
    return LayerTrainer(layer, optimizer, config, STEPS, torch.zeros(EXPERTS, dtype=torch.int64))


def trap(language_model: LanguageModel, index: int) -> MxD:
    """The original weights with one always-active expert of ones: a perfect layer whose routing does nothing."""
    layer = build_layer(layer_config(num_experts=12, k=1, **vars(language_model.architecture.mlp_shape(index))))
    assert isinstance(layer, MxD) and layer.encoder_gate is not None
    weights = language_model.architecture.encoder_weights(index)
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
