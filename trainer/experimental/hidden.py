"""MxD that mixes hidden units instead of outputs, as in EleutherAI's clt-training (branches ``mxd`` and ``molt``).

    z = x E + b_e                               without an activation function
    y = (z * (a C + m)) D + b_out               paper's mixing, with a learned constant part m
    y = (z * (a C - centre)) D + b_out          centred mixing

Expert n is the linear map E diag(c_n) D of the input, plus a constant. Without an activation function the dense path is
linear, so that no constant mixing can be the MLP. A row c_n has H entries instead of O.

Shapes: T tokens, I input width, H hidden width, O output width, N experts, K active experts; the mixing width is H.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from mxd.trainer.config import LayerConfig, Method
from mxd.trainer.layers.base import Routing
from mxd.trainer.layers.mxd import MxD
from mxd.trainer.layers.registry import register_layers
from mxd.trainer.layers.sharding import Shards


class HiddenMxD(MxD):
    """MxD that mixes hidden units. ``scaling_NO`` is H wide."""

    method: ClassVar[Method] = "hidden-mxd"
    mixes_outputs: ClassVar[bool] = False

    def __init__(self, config: LayerConfig, shards: Shards | None = None) -> None:
        super().__init__(config, shards)
        if config.mixing == "paper":
            self.mixing_bias_H = nn.Parameter(torch.zeros(config.hidden_width))

    @property
    def mixing_width(self) -> int:
        """The hidden width."""
        return self.config.hidden_width

    def encode(self, x_TI: Tensor) -> Tensor:
        hidden_TH: Tensor = self.encoder(x_TI)
        return hidden_TH

    def dense_output(self, x_TI: Tensor) -> Tensor:
        """z, [T, H]."""
        return self.encode(x_TI)

    def centred(self, mixing_TM: Tensor) -> Tensor:
        """Add the constant part of the mixing, or subtract its centre."""
        return mixing_TM + self.mixing_bias_H if self.config.mixing == "paper" else super().centred(mixing_TM)

    def decode_mixed(self, dense_TM: Tensor, mixing_TM: Tensor) -> Tensor:
        output_TO: Tensor = self.decoder(dense_TM * self.centred(mixing_TM)) + self.output_bias
        return output_TO

    def contribution(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        added_TO: Tensor = self.decoder(dense_TM * self.mixing(routing))
        return added_TO

    def contribution_norms(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        # One column at a time: a [T, K, O] tensor would hold K outputs per token.
        norms = [self.decoder(dense_TM * self.scaling_NO[ids_T]).norm(dim=1) for ids_T in routing.indices_TK.T]
        return torch.stack(norms, dim=1) * routing.activations_TK.abs()

    @property
    def output_projection(self) -> Tensor:
        """D."""
        return self.decoder.weight

    def expert_matrix(self, expert: int) -> Tensor:
        """E diag(c_n) D, [I, O]; the expert's output is x W_n plus a constant."""
        scaled_HI = self.scaling_NO[expert].unsqueeze(1) * self.encoder.weight
        return scaled_HI.T @ self.decoder.weight.T


register_layers("hidden-mxd", HiddenMxD)
