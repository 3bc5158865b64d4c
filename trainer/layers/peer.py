"""PEER (arXiv 2407.04153): many experts of one neuron each, which several heads find by product keys.

    of each head:  the experts n = (i, j) with the largest key scores  s_n = relu(x k_i + b_i + x l_j + c_j)
    a_n = softmax(s)_n relu(x u_n + b_n),  softmax over the chosen of a head, added up over the heads that chose n
    y = a W_dec + b_out

An expert reads one direction u_n and writes one direction, so it stands beside a transcoder's feature and not beside
the full maps of an MxD; unlike in a transcoder, who is looked at and what it answers are apart. Two things are not the
original's: a key score goes through relu first, as in all gates here (the few largest are positive nearly always), and
keys are as wide as the input, of which its shared keys behind a query a head are a special case.

K counts experts of all heads together: each chooses its share, and the K strongest are let through.

Shapes: T tokens, I input width, N experts, K active, P chosen by all heads together.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from trainer.config import LayerConfig, Method
from trainer.gate_config import GateForm
from trainer.layers.baselines import Transcoder
from trainer.layers.gates.product_key import ProductKeyGate
from trainer.layers.gates.sums import Part, coefficients
from trainer.layers.kernels import ops_for
from trainer.layers.sparse import Routing
from trainer.methods import HEADS


class Peer(Transcoder):
    """A mixture of single neurons. ``gate`` has what they read, a row an expert; ``heads`` find them."""

    method: ClassVar[Method] = "peer"
    expert_tables: ClassVar[tuple[str, ...]] = ()
    gates: ClassVar[frozenset[GateForm]] = frozenset({"flat"})

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.heads = nn.ModuleList(ProductKeyGate(config.input_width, config.num_experts) for _ in range(HEADS))

    def route(self, x_TI: Tensor) -> Routing:
        """The experts of each token, largest coefficient first; of columns that no expert has, 0."""
        each = min(-(-self.config.k // HEADS), self.config.num_experts)
        found = [head.choose(x_TI, each) for head in self.heads if isinstance(head, ProductKeyGate)]
        ids_TP = torch.cat([ids for _, ids in found], dim=1)
        weights_TP = torch.cat([scores.softmax(dim=1) for scores, _ in found], dim=1)
        return _strongest(weights_TP * self._neurons(x_TI, ids_TP), ids_TP, self.config.k)

    def _neurons(self, x_TI: Tensor, ids_TP: Tensor) -> Tensor:
        """relu(x u_n + b_n) of some experts of each token, [T, P]."""
        weight_NI, bias_N = self.gate.get_parameter("weight"), self.gate.get_parameter("bias")
        with torch.no_grad():
            scores_TP = ops_for(x_TI).row_dots(x_TI, weight_NI, ids_TP) + bias_N[ids_TP]
        return coefficients(x_TI, scores_TP, Part(weight_NI, bias_N, ids_TP))


def _strongest(values_TP: Tensor, ids_TP: Tensor, k: int) -> Routing:
    """Each expert once, with the sum of its values; the K largest sums."""
    sorted_TP, order_TP = ids_TP.sort(dim=1)
    is_new_TP = nn.functional.pad(sorted_TP[:, 1:] != sorted_TP[:, :-1], (1, 0))
    places_TP = is_new_TP.cumsum(dim=1)
    sums_TP = torch.zeros_like(values_TP).scatter_add(1, places_TP, values_TP.gather(1, order_TP))
    owners_TP = torch.zeros_like(ids_TP).scatter(1, places_TP, sorted_TP)
    values_TK, chosen_TK = sums_TP.topk(min(k, values_TP.shape[1]), dim=1)
    return Routing(values_TK, owners_TP.gather(1, chosen_TK))
