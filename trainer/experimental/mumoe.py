"""muMoE (arXiv 2402.12550): mixtures of factorised experts with the encoder and gate of an MxD.

    y = ((a U) * (z V)) W + b_out                               CP form: expert n is V diag(u_n) W, of rank at most R
    A = sum_n a_n U1(n),   Z = sum_h z_h U2(h),   y_o = tr(A Z U3(o)) + b_out
                                                                tensor-ring form: all cores are R x R matrices

With R = O and W the identity, the CP form is an MxD. In tensor-ring form, expert n maps z through a bottleneck of R²
values, whose rows U1(n) mixes; the CP form scales each bottleneck value separately.

Shapes: T tokens, H hidden width, O output width, N experts, K active experts, R rank or core side, M bottleneck width.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from mxd.trainer.config import LayerConfig, Method
from mxd.trainer.config.layer import method_traits
from mxd.trainer.layers.base import Routing
from mxd.trainer.layers.mxd import MxD
from mxd.trainer.layers.registry import register_layers
from mxd.trainer.layers.sharding import Shards


class LowRankMxD(MxD):
    """Mixture of experts of rank R. ``decoder`` is V, ``scaling_NO`` is U (R wide) and ``up`` is W.

    ``up`` is initialised to zero, so the first output is the output bias.
    """

    method: ClassVar[Method] = "low-rank-mxd"
    mixes_outputs: ClassVar[bool] = False

    def __init__(self, config: LayerConfig, shards: Shards | None = None) -> None:
        super().__init__(config, shards)
        self.decoder = nn.Linear(config.hidden_width, self.mixing_width, bias=False)
        self.up = nn.Linear(self.mixing_width, config.output_width, bias=False)
        nn.init.zeros_(self.up.weight)

    @property
    def mixing_width(self) -> int:
        """Width of the bottleneck."""
        traits = method_traits(self.method).rank
        assert traits is not None
        return traits.bottleneck(self.config.num_experts, self.required_rank())

    def combine(self, dense_TM: Tensor, mixing_TM: Tensor) -> Tensor:
        """Apply the mixing to the bottleneck, [T, M]."""
        return mixing_TM * dense_TM

    def contribution(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        added_TO: Tensor = self.up(self.combine(dense_TM, self.mixing(routing)))
        return added_TO

    def decode_mixed(self, dense_TM: Tensor, mixing_TM: Tensor) -> Tensor:
        output_TO: Tensor = self.up(self.combine(dense_TM, mixing_TM)) + self.output_bias
        return output_TO

    def contribution_norms(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        # One column at a time: a [T, K, O] tensor would hold K outputs per token.
        norms = [self.up(self.combine(dense_TM, self.scaling_NO[ids_T])).norm(dim=1) for ids_T in routing.indices_TK.T]
        return torch.stack(norms, dim=1) * routing.activations_TK.abs()

    @property
    def output_projection(self) -> Tensor | None:
        """W."""
        return self.up.weight

    def expert_matrix(self, expert: int) -> Tensor:
        """V diag(u_n) W, [H, O]."""
        rows_HM = self.decoder.weight.T
        matrix_HO: Tensor = self.combine(rows_HM, self.scaling_NO[expert].expand_as(rows_HM)) @ self.up.weight.T
        return matrix_HO


register_layers("low-rank-mxd", LowRankMxD)


class TensorRingMxD(LowRankMxD):
    """``decoder`` is U2, ``scaling_NO`` is U1 with one row per expert (both M wide); ``up`` is U3, initialised to
    zero."""

    method: ClassVar[Method] = "tensor-ring-mxd"

    def __init__(self, config: LayerConfig, shards: Shards | None = None) -> None:
        super().__init__(config, shards)
        self.side = self.required_rank()
        # As in muMoE, cores start near the identity, so every expert initially passes everything through.
        diagonal_R = torch.arange(self.side) * (self.side + 1)
        with torch.no_grad():
            self.scaling_NO.zero_()
            self.scaling_NO[:, diagonal_R] = 1 + torch.randn(config.num_experts, self.side)[self.own_experts]

    @property
    def output_projection(self) -> None:
        """None, because the mixing is a product of matrices."""
        return None

    def combine(self, dense_TM: Tensor, mixing_TM: Tensor) -> Tensor:
        """A Z, [T, M]."""
        shape = -1, self.side, self.side
        return torch.bmm(mixing_TM.reshape(shape), dense_TM.reshape(shape)).flatten(1)


register_layers("tensor-ring-mxd", TensorRingMxD)
