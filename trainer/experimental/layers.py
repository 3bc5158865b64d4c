"""Experimental MxDs that mix a vector inside the decoder instead of outputs.

hidden-mxd mixes hidden units, as EleutherAI's clt-training does (branches ``mxd`` and ``molt``):

    z = x E + b_e                               without an activation function
    y = (z * (a C + m)) D + b_out               paper's mixing, with a learned constant part m
    y = (z * (a C - centre)) D + b_out          centred mixing

Expert n is the linear map E diag(c_n) D of the input, plus a constant. Without an activation function the dense path is
linear, so that no constant mixing can be the MLP. A row c_n has H entries instead of O.

muMoE (arXiv 2402.12550) has factorised experts, with the encoder and gate of an MxD:

    y = ((a U) * (z V)) W + b_out                               CP form: expert n is V diag(u_n) W, of rank at most R
    A = sum_n a_n U1(n),   Z = sum_h z_h U2(h),   y_o = tr(A Z U3(o)) + b_out
                                                                tensor-ring form: all cores are R x R matrices

With R = O and W the identity, the CP form is an MxD. In tensor-ring form, expert n maps z through a bottleneck of R²
values, whose rows U1(n) mixes; the CP form scales each bottleneck value separately.

Shapes: T tokens, I input width, H hidden width, O output width, N experts, K active experts, R rank or core side, M
mixing width: H, or that of the bottleneck.
"""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from mxd.trainer.config.layer import LayerConfig, Method, method_traits
from mxd.trainer.layers.mxd import MxD, Routing
from mxd.trainer.layers.ops import Shards
from mxd.trainer.layers.variants import register_layers


class InnerMxD(MxD):
    """MxD that mixes the dense output, which ``projection`` then maps to the output."""

    mixes_outputs: ClassVar[bool] = False

    @property
    @abstractmethod
    def projection(self) -> nn.Linear:
        """Map from the mixed vector to the output."""

    @property
    def output_projection(self) -> Tensor | None:
        return self.projection.weight

    def combine(self, dense_TM: Tensor, mixing_TM: Tensor) -> Tensor:
        """Apply the mixing to the dense output, [T, M]."""
        return dense_TM * mixing_TM

    def decode_mixed(self, dense_TM: Tensor, mixing_TM: Tensor) -> Tensor:
        output_TO: Tensor = self.projection(self.combine(dense_TM, self.centred(mixing_TM))) + self.output_bias
        return output_TO

    def contribution(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        added_TO: Tensor = self.projection(self.combine(dense_TM, self.mixing(routing)))
        return added_TO

    def contribution_norms(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        # One column at a time: a [T, K, O] tensor would hold K outputs per token.
        columns = (self.combine(dense_TM, self.scaling_NO[ids_T]) for ids_T in routing.indices_TK.T)
        norms_TK = torch.stack([self.projection(column_TM).norm(dim=1) for column_TM in columns], dim=1)
        return norms_TK * routing.activations_TK.abs()


class HiddenMxD(InnerMxD):
    """MxD that mixes hidden units. ``scaling_NO`` is H wide."""

    method: ClassVar[Method] = "hidden-mxd"

    def __init__(self, config: LayerConfig, shards: Shards | None = None) -> None:
        super().__init__(config, shards)
        if config.mixing == "paper":
            self.mixing_bias_H = nn.Parameter(torch.zeros(config.hidden_width))

    @property
    def mixing_width(self) -> int:
        """The hidden width."""
        return self.config.hidden_width

    @property
    def projection(self) -> nn.Linear:
        """D."""
        return self.decoder

    def encode(self, x_TI: Tensor) -> Tensor:
        hidden_TH: Tensor = self.encoder(x_TI)
        return hidden_TH

    def dense_output(self, x_TI: Tensor) -> Tensor:
        """z, [T, H]."""
        return self.encode(x_TI)

    def centred(self, mixing_TM: Tensor) -> Tensor:
        """Add the constant part of the mixing, or subtract its centre."""
        return mixing_TM + self.mixing_bias_H if self.config.mixing == "paper" else super().centred(mixing_TM)

    def expert_matrix(self, expert: int) -> Tensor:
        """E diag(c_n) D, [I, O]; the expert's output is x W_n plus a constant."""
        scaled_HI = self.scaling_NO[expert].unsqueeze(1) * self.encoder.weight
        return scaled_HI.T @ self.decoder.weight.T


class LowRankMxD(InnerMxD):
    """Mixture of experts of rank R. ``decoder`` is V, ``scaling_NO`` is U (R wide) and ``up`` is W.

    ``up`` is initialised to zero, so the first output is the output bias.
    """

    method: ClassVar[Method] = "low-rank-mxd"

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

    @property
    def projection(self) -> nn.Linear:
        """W."""
        return self.up

    def expert_matrix(self, expert: int) -> Tensor:
        """V diag(u_n) W, [H, O]."""
        rows_HM = self.decoder.weight.T
        matrix_HO: Tensor = self.combine(rows_HM, self.scaling_NO[expert].expand_as(rows_HM)) @ self.up.weight.T
        return matrix_HO


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


register_layers("hidden-mxd", HiddenMxD)
register_layers("low-rank-mxd", LowRankMxD)
register_layers("tensor-ring-mxd", TensorRingMxD)
