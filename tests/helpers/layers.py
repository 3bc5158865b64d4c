"""Small layers for tests, and trainers of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mxd.trainer.config import Activation, Encoder, LayerConfig, Method, OptimizerConfig, TextConfig, TrainConfig
from mxd.trainer.config.layer import Mixing, method_traits
from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.training.layer_trainer import LayerTrainer

TOKENS, WIDTH, EXPERTS, STEPS = 32, 12, 40, 9
"""Sizes of ``layer_trainer``."""


def random_layer(
    encoder: Encoder = "glu",
    activation: Activation = "silu",
    widths: tuple[int, int, int] = (12, 20, 10),
    num_experts: int = 33,
    k: int = 5,
    seed: int = 0,
    mixing: Mixing = "paper",
) -> SparseLayer:
    """A layer with random parameters, the decoder included."""
    config = LayerConfig(
        input_width=widths[0],
        hidden_width=widths[1],
        output_width=widths[2],
        num_experts=num_experts,
        k=k,
        activation=activation,
        encoder=encoder,
        mixing=mixing,
    )
    return _random(config, seed)


def random_layer_of(method: Method, encoder: Encoder = "glu", rank: int = 3, k: int = 5) -> SparseLayer:
    """A layer of any method: 33 experts, 12 inputs (10 for an autoencoder), 10 outputs."""
    config = LayerConfig(
        method=method,
        input_width=10 if method == "autoencoder" else 12,
        hidden_width=20,
        output_width=10,
        num_experts=33,
        k=33 if method == "relu-mxd" else k,
        activation="silu",
        encoder=encoder,
        rank=rank if method_traits(method).rank else None,
    )
    return _random(config, seed=0)


def _random(config: LayerConfig, seed: int) -> SparseLayer:
    layer = build_layer(config)
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
        LayerConfig(
            method=method,
            input_width=WIDTH,
            hidden_width=20,
            output_width=WIDTH,
            num_experts=EXPERTS,
            k=4,
            activation="gelu",
            encoder="mlp",
            min_k=min_k,
            mixing=traits.mixing,
            rank=3 if traits.rank else None,
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
