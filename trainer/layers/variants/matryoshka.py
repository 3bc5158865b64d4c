"""Matryoshka-K: one layer that works with any number of its strongest experts, trained at several numbers jointly.

    y_k = output with the k largest gate activations of a token,      loss = mean over k of the error of y_k

for k = K, K/2, K/4 … down to min_k. In Matryoshka autoencoders (arXiv 2503.17547), prefixes are of experts and the same
for all tokens. Here they are of each token's own experts, strongest first. The gate sorts its scores anyway and the
mixing is linear in the gate activations, so all prefixes cost one mixing. Only decoding and the error are computed per
prefix.

Shapes: T tokens, I input width, O output width, M mixing width.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from mxd.trainer.layers.base import LayerOutput, Routing, SparseLayer


class NestedOutput(NamedTuple):
    """Outputs of a layer for several numbers of experts."""

    full: LayerOutput
    """Output with all K experts."""
    outputs: tuple[Tensor, ...]
    """Output [T, O] for each number of experts, smallest first; the last is that of ``full``."""


def nested_ks(k: int, smallest: int) -> tuple[int, ...]:
    """Numbers of experts to train jointly, ascending: the smallest, and K, K/2, K/4 … above it."""
    sizes = [k]
    while sizes[-1] // 2 > smallest:
        sizes.append(sizes[-1] // 2)
    return tuple(sorted({smallest, *sizes}))


def nested_outputs(layer: SparseLayer, x_TI: Tensor, ks: tuple[int, ...]) -> NestedOutput:
    """Compute the outputs for each number of experts; ``ks`` ascend to K."""
    dense_TM = layer.dense_output(x_TI)
    routing = layer.route(x_TI)
    parts = [
        layer.mixing(Routing(*(values[:, first:end].contiguous() for values in routing)))
        for first, end in pairwise((0, *ks))
    ]
    mixings = torch.stack(parts).cumsum(dim=0)
    outputs = tuple(layer.decode_mixed(dense_TM, mixing_TM) for mixing_TM in mixings)
    return NestedOutput(LayerOutput(outputs[-1], routing, dense_TM, mixings[-1]), outputs)
