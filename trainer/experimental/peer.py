"""PEER (arXiv 2407.04153): many single-neuron experts, which several heads select with product keys.

    per head:  select the experts n = (i, j) with the largest key scores  s_n = relu(x k_i + b_i + x l_j + c_j)
    a_n = softmax(s)_n relu(x u_n + b_n),  softmax over the experts of a head, summed over the heads that selected n
    y = a W_dec + b_out

An expert reads one direction u_n and writes one direction, like a transcoder's feature and unlike an MxD's full linear
map. Unlike in a transcoder, selection and activation use different directions. Two details differ from the original:
key scores pass through a ReLU, as in every gate here, and keys have the input's width. The original's shared keys
behind a query per head are a special case of the latter.

K counts the experts of all heads: each head selects its share, and the K largest activations are kept.

Shapes: T tokens, I input width, N experts, K active experts, P experts selected by all heads.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from mxd.trainer.config import LayerConfig, Method
from mxd.trainer.config.gates import GateForm
from mxd.trainer.config.methods import method_traits
from mxd.trainer.layers.base import Routing
from mxd.trainer.layers.gates.product_key import ProductKeyGate
from mxd.trainer.layers.gates.row_sums import ScorePart, coefficients
from mxd.trainer.layers.ops import ops_for
from mxd.trainer.layers.registry import register_layers
from mxd.trainer.layers.transcoders import Transcoder

HEADS = method_traits("peer").heads
"""Number of heads, each of which selects its share of a token's experts."""


class Peer(Transcoder):
    """Mixture of single neurons. ``gate`` holds the neurons' input weights; ``heads`` select them."""

    method: ClassVar[Method] = "peer"
    expert_tables: ClassVar[tuple[str, ...]] = ()
    gates: ClassVar[frozenset[GateForm]] = frozenset({"flat"})

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.heads = nn.ModuleList(ProductKeyGate(config.input_width, config.num_experts) for _ in range(HEADS))

    def route(self, x_TI: Tensor) -> Routing:
        """Experts of each token, largest gate activation first; unused columns are 0."""
        k_per_head = min(-(-self.config.k // HEADS), self.config.num_experts)
        selected = [head.choose(x_TI, k_per_head) for head in self.heads if isinstance(head, ProductKeyGate)]
        ids_TP = torch.cat([ids for _, ids in selected], dim=1)
        weights_TP = torch.cat([scores.softmax(dim=1) for scores, _ in selected], dim=1)
        return _merge_duplicates(weights_TP * self._neurons(x_TI, ids_TP), ids_TP, self.config.k)

    def _neurons(self, x_TI: Tensor, ids_TP: Tensor) -> Tensor:
        """relu(x u_n + b_n) of the selected experts, [T, P]."""
        weight_NI, bias_N = self.gate.get_parameter("weight"), self.gate.get_parameter("bias")
        with torch.no_grad():
            scores_TP = ops_for(x_TI).row_dots(x_TI, weight_NI, ids_TP) + bias_N[ids_TP]
        return coefficients(x_TI, scores_TP, ScorePart(weight_NI, bias_N, ids_TP))


def _merge_duplicates(values_TP: Tensor, ids_TP: Tensor, k: int) -> Routing:
    """Sum the values of experts that several heads selected, and keep the K largest sums."""
    sorted_TP, order_TP = ids_TP.sort(dim=1)
    is_new_TP = nn.functional.pad(sorted_TP[:, 1:] != sorted_TP[:, :-1], (1, 0))
    columns_TP = is_new_TP.cumsum(dim=1)
    sums_TP = torch.zeros_like(values_TP).scatter_add(1, columns_TP, values_TP.gather(1, order_TP))
    unique_TP = torch.zeros_like(ids_TP).scatter(1, columns_TP, sorted_TP)
    values_TK, chosen_TK = sums_TP.topk(min(k, values_TP.shape[1]), dim=1)
    return Routing(values_TK, unique_TP.gather(1, chosen_TK))


register_layers("peer", Peer)
