"""Small layers for tests."""

from __future__ import annotations

import torch

from trainer.config import Activation, Encoder, LayerConfig
from trainer.layers.registry import build_layer
from trainer.layers.sparse import SparseLayer


def random_layer(
    encoder: Encoder = "glu",
    activation: Activation = "silu",
    widths: tuple[int, int, int] = (12, 20, 10),
    num_experts: int = 33,
    k: int = 5,
    seed: int = 0,
) -> SparseLayer:
    """A layer whose every parameter is random, the decoder too."""
    config = LayerConfig(
        input_width=widths[0],
        hidden_width=widths[1],
        output_width=widths[2],
        num_experts=num_experts,
        k=k,
        activation=activation,
        encoder=encoder,
    )
    layer = build_layer(config)
    generator = torch.Generator().manual_seed(seed)
    for parameter in layer.parameters():
        parameter.data.normal_(0, 0.5, generator=generator)
    return layer
