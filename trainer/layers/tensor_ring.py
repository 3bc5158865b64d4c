"""A mixture of experts in tensor-ring form (muMoE, arXiv 2402.12550) behind the encoder and the gate of an MxD.

    A = sum_n a_n U1(n),   Z = sum_h z_h U2(h),   y_o = tr(A Z U3(o)) + b_out

All cores are R x R matrices, so expert n maps z through R² numbers, of which U1(n) mixes the rows. Where the CP form
(``ablations.LowRank``) scales each of its numbers by one factor, this one lets them act on each other.

Shapes: T tokens, H hidden width, O output width, N experts, K active, R side of the cores, S = R².
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from trainer.config import LayerConfig, Method
from trainer.layers.ablations import LowRank
from trainer.layers.mxd import GluMxD, MlpMxD


class TensorRing(LowRank):
    """``decoder`` is U2, ``scaling_NO`` is U1 with a row an expert, both S wide; ``up`` is U3 and starts at zero."""

    method: ClassVar[Method] = "tensor-ring-mxd"

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        assert config.rank is not None
        self.side = config.rank
        # As in muMoE: cores near the identity, through which every expert lets everything at first.
        diagonal_R = torch.arange(self.side) * (self.side + 1)
        with torch.no_grad():
            self.scaling_NO.zero_()
            self.scaling_NO[:, diagonal_R] = 1 + torch.randn(config.num_experts, self.side)

    @staticmethod
    def inner_width(rank: int) -> int:
        return rank**2

    def join(self, dense_TM: Tensor, mixing_TM: Tensor) -> Tensor:
        """A Z, [T, S]."""
        shape = -1, self.side, self.side
        return torch.bmm(mixing_TM.reshape(shape), dense_TM.reshape(shape)).flatten(1)


class MlpTensorRing(TensorRing, MlpMxD):
    """Tensor-ring MxD for a plain MLP."""


class GluTensorRing(TensorRing, GluMxD):
    """Tensor-ring MxD for a gated linear unit."""
