"""Matryoshka-K: one layer that answers with any number of its strongest experts, fitted at several numbers at once.

    y_k = answer with the k largest coefficients of a token,      loss = mean over k of the error of y_k

for k = K, K/2, K/4 … down to the smallest that is asked for (after Matryoshka autoencoders, arXiv 2503.17547, whose
prefixes are of experts, the same for all tokens; here they are of a token's own experts, strongest first). The gate has
sorted its scores already, and what the routing decides is linear in the coefficients, so all prefixes together cost one
mixing; only the decoder's last product and the error are taken once for each.

Shapes: T tokens, I input width, O output width, M mixing.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from trainer.layers.sparse import LayerOutput, Routing, SparseLayer


class NestedOutput(NamedTuple):
    """What a layer gives with each number of experts."""

    whole: LayerOutput
    """With all K."""
    outputs: tuple[Tensor, ...]
    """[T, O] of each number, the smallest first; the last is that of ``whole``."""


def nested_ks(k: int, smallest: int) -> tuple[int, ...]:
    """The numbers of experts that are fitted together, ascending: the smallest, K, and its halves between them."""
    sizes = [k]
    while sizes[-1] // 2 > smallest:
        sizes.append(sizes[-1] // 2)
    return tuple(sorted({smallest, *sizes}))


def nested_answers(layer: SparseLayer, x_TI: Tensor, ks: tuple[int, ...]) -> NestedOutput:
    """Answer with each number of experts; ``ks`` ascend to K."""
    dense_TM = layer.dense_output(x_TI)
    routing = layer.route(x_TI)
    parts = [
        layer.mixing(Routing(*(values[:, first:end].contiguous() for values in routing)))
        for first, end in pairwise((0, *ks))
    ]
    mixings = torch.stack(parts).cumsum(dim=0)
    outputs = tuple(layer.decode_mixed(dense_TM, mixing_TM) for mixing_TM in mixings)
    return NestedOutput(LayerOutput(outputs[-1], routing, dense_TM), outputs)
