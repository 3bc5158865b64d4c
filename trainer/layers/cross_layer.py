"""Cross-layer MxD: one set of experts that reads one MLP's input and writes what several adjacent MLPs answer.

    z = act(x E_g + b_g) * (x E + b_e)          one encoder, of the MLP that is read
    a = TopK(relu(x G + b_gate))                one gate: one routing for all layers
    y_j = (a C_j) * (z D_j) + b_j               for each layer j that is written

With the C_j, D_j and b_j side by side this is an MxD whose output is S times as wide: expert n is a full-rank linear
map D diag(c_n) from z into all S outputs at once. So everything that holds of an MxD holds here; what differs is what
an output means, which ``SparseLayer.parts`` and ``trainer.stand_ins.in_blocks`` know. In use the outputs of the later
layers are worked out from what was read at the first, at the same token: nothing that attention or the layers between
add to the residual stream is seen. That is what such a layer gives up, beside cross-layer transcoders, which have an
encoder a layer (https://transformer-circuits.pub/2025/attribution-graphs/methods.html).

The encoder is one, not one for every layer that is written: it then starts at the weights of an MLP that did read this
input, a fit of one layer is exactly an MxD, and what is saved goes into experts.

Shapes: T tokens, I input width, H hidden width, O width of all outputs together, S layers that are written, N experts.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from trainer.config import Method
from trainer.layers.mxd import GluMxD, MlpMxD, MxD
from trainer.layers.sparse import Routing
from trainer.layers.stock_ops import PAIRS_AT_A_TIME


class MlpCrossLayer(MlpMxD):
    """A cross-layer MxD that reads what a plain MLP reads."""

    method: ClassVar[Method] = "cross-layer-mxd"


class GluCrossLayer(GluMxD):
    """A cross-layer MxD that reads what a gated linear unit reads."""

    method: ClassVar[Method] = "cross-layer-mxd"


def norms_in_layers(layer: MxD, dense_TM: Tensor, routing: Routing) -> Tensor:
    """Euclidean norm of each active expert's own contribution to each layer that is written, [T, K, S]."""
    tokens = max(1, PAIRS_AT_A_TIME // routing.indices_TK.shape[1])
    chunks = zip(dense_TM.split(tokens), routing.indices_TK.split(tokens), strict=True)
    norms = [
        (layer.scaling_NO[ids] * dense.unsqueeze(1)).unflatten(2, (layer.span, -1)).norm(dim=3) for dense, ids in chunks
    ]
    return torch.cat(norms) * routing.coefficients_TK.abs().unsqueeze(2)
