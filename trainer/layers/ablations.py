"""An MxD with one thing taken away, to see what that thing is worth.

    a = relu(x G + b_gate)                      ReLU-MxD: no top-k, every positive expert is active
    y = ((a U) * (z V)) W + b_out               low-rank MxD: expert n is V diag(u_n) W, of rank R at most

The second is the CP form of a mixture of low-rank experts (muMoE, arXiv 2402.12550) behind the encoder and the gate of
an MxD. With R = O and W the identity it would be an MxD again.

Shapes: T tokens, I input width, H hidden width, O output width, N experts, K active, R rank.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from trainer.config import LayerConfig, Method
from trainer.errors import UserError
from trainer.layers.every_expert import EveryExpert
from trainer.layers.mxd import GluMxD, MlpMxD, MxD
from trainer.layers.sparse import Routing


class ReluGate(EveryExpert, MxD):
    """An MxD whose gate lets every positive expert through; K is N."""

    method: ClassVar[Method] = "relu-mxd"


class MlpReluMxD(ReluGate, MlpMxD):
    """ReLU-MxD for a plain MLP."""


class GluReluMxD(ReluGate, GluMxD):
    """ReLU-MxD for a gated linear unit."""


class LowRank(MxD):
    """A mixture of experts of rank R. ``decoder`` is V and ``scaling_NO`` is U, both R wide; ``up`` is W.

    As in an MxD the last matrix starts at zero, so the first answer is the output bias.
    """

    method: ClassVar[Method] = "low-rank-mxd"

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        if config.rank is None:
            raise UserError(f"A {self.method} needs a rank; its config has none.")
        width = self.inner_width(config.rank)
        self.decoder = nn.Linear(config.hidden_width, width, bias=False)
        weight_RN = nn.Linear(config.num_experts, width).weight.detach()
        self.scaling_NO = nn.Parameter(weight_RN.T.contiguous())
        self.up = nn.Linear(width, config.output_width, bias=False)
        nn.init.zeros_(self.up.weight)

    @staticmethod
    def inner_width(rank: int) -> int:
        """Numbers that an expert's answer passes through."""
        return rank

    def join(self, dense_TM: Tensor, mixing_TM: Tensor) -> Tensor:
        """What becomes of these numbers under a mixing: here each is scaled."""
        return mixing_TM * dense_TM

    def contribution(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        added_TO: Tensor = self.up(self.join(dense_TM, self.mixing(routing)))
        return added_TO

    def decode_mixed(self, dense_TM: Tensor, mixing_TO: Tensor) -> Tensor:
        output_TO: Tensor = self.up(self.join(dense_TM, mixing_TO)) + self.output_bias
        return output_TO

    def contribution_norms(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        # One column at a time: [T, K, O] at once would be K outputs wide.
        norms = [self.up(self.join(dense_TM, self.scaling_NO[ids_T])).norm(dim=1) for ids_T in routing.indices_TK.T]
        return torch.stack(norms, dim=1) * routing.coefficients_TK.abs()

    def expert_matrix(self, expert: int) -> Tensor:
        """V diag(u_n) W, shape [H, O]."""
        rows_HR = self.decoder.weight.T
        matrix_HO: Tensor = self.join(rows_HR, self.scaling_NO[expert].expand_as(rows_HR)) @ self.up.weight.T
        return matrix_HO


class MlpLowRankMxD(LowRank, MlpMxD):
    """Low-rank MxD for a plain MLP."""


class GluLowRankMxD(LowRank, GluMxD):
    """Low-rank MxD for a gated linear unit."""
