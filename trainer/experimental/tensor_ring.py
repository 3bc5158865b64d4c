"""Tensor-ring MxD: a mixture of experts in tensor-ring form (muMoE, arXiv 2402.12550) with the encoder and gate of an
MxD.

    A = sum_n a_n U1(n),   Z = sum_h z_h U2(h),   y_o = tr(A Z U3(o)) + b_out

All cores are R x R matrices, so expert n maps z through a bottleneck of R² values, whose rows U1(n) mixes. The CP form
(``low_rank.LowRankMxD``) scales each bottleneck value separately.

Shapes: T tokens, H hidden width, O output width, N experts, K active experts, R core side, M = R² bottleneck width.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from mxd.trainer.config import LayerConfig, Method
from mxd.trainer.experimental.low_rank import LowRankMxD
from mxd.trainer.layers.mxd import GluMxD, MlpMxD
from mxd.trainer.layers.registry import register_layers


class TensorRingMxD(LowRankMxD):
    """``decoder`` is U2, ``scaling_NO`` is U1 with one row per expert (both M wide); ``up`` is U3, initialised to
    zero."""

    method: ClassVar[Method] = "tensor-ring-mxd"

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.side = self.required_rank()
        # As in muMoE, cores start near the identity, so every expert initially passes everything through.
        diagonal_R = torch.arange(self.side) * (self.side + 1)
        with torch.no_grad():
            self.scaling_NO.zero_()
            self.scaling_NO[:, diagonal_R] = 1 + torch.randn(config.num_experts, self.side)

    @property
    def output_projection(self) -> None:
        """None, because the mixing is a product of matrices."""
        return None

    def combine(self, dense_TM: Tensor, mixing_TM: Tensor) -> Tensor:
        """A Z, [T, M]."""
        shape = -1, self.side, self.side
        return torch.bmm(mixing_TM.reshape(shape), dense_TM.reshape(shape)).flatten(1)


class MlpTensorRingMxD(TensorRingMxD, MlpMxD):
    """Tensor-ring MxD for a plain MLP."""


class GluTensorRingMxD(TensorRingMxD, GluMxD):
    """Tensor-ring MxD for a gated linear unit."""


register_layers("tensor-ring-mxd", MlpTensorRingMxD, GluTensorRingMxD)
