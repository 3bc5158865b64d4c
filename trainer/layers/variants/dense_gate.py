"""Imported layers without a top-k: every expert whose score exceeds its threshold is active, so K is N.

    a = relu(s) [s > θ],    s = x G + b_gate,    θ = 0 without thresholds

Shapes: T tokens, I input width, O output width, N experts, K active experts.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from mxd.trainer.config import LayerConfig, Method
from mxd.trainer.layers.base import Routing, SparseLayer
from mxd.trainer.layers.mxd import GluMxD, MlpMxD, MxD
from mxd.trainer.layers.transcoders import SkipTranscoder, Transcoder


class DenseGate(SparseLayer):
    """Mixin: a gate that activates every expert with a positive score. The subclass provides the decoder."""

    expert_tables: ClassVar[tuple[str, ...]] = ()

    def coefficients(self, x_TI: Tensor) -> Tensor:
        """Gate activations of all experts, [T, N]; 0 if inactive."""
        return F.relu(self.gate(x_TI))

    def route(self, x_TI: Tensor) -> Routing:
        """All experts, ordered by id; the gate activation of inactive experts is 0."""
        coefficients_TN = self.coefficients(x_TI)
        ids_N = torch.arange(self.config.num_experts, device=x_TI.device)
        return Routing(coefficients_TN, ids_N.expand_as(coefficients_TN))

    def mixing(self, routing: Routing) -> Tensor:
        """Gate activations times the table with one row per expert."""
        # Gathering all rows per token would need far more memory than one matrix product.
        if routing.indices_TK.shape[1] != self.config.num_experts:
            return self.mix(routing, self.table)
        return self.dense_coefficients(routing) @ self.table

    def dense_coefficients(self, routing: Routing) -> Tensor:
        """Gate activations as a dense matrix [T, N], for any column order."""
        shape = routing.coefficients_TK.shape[0], self.config.num_experts
        return routing.coefficients_TK.new_zeros(shape).scatter_add(1, routing.indices_TK, routing.coefficients_TK)


class ReluMxD(DenseGate, MxD):
    """MxD whose gate activates every expert with a positive score, as in the paper's ablation of the top-k."""

    method: ClassVar[Method] = "relu-mxd"


class MlpReluMxD(ReluMxD, MlpMxD):
    """ReLU-MxD for a plain MLP."""


class GluReluMxD(ReluMxD, GluMxD):
    """ReLU-MxD for a gated linear unit."""


class FixedThresholds(DenseGate):
    """Mixin: a gate with a fixed threshold per expert, as in imported transcoders."""

    threshold_N: Tensor

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.register_buffer("threshold_N", torch.zeros(config.num_experts))

    def coefficients(self, x_TI: Tensor) -> Tensor:
        scores_TN: Tensor = self.gate(x_TI)
        return F.relu(scores_TN) * (scores_TN > self.threshold_N)


class JumpReluTranscoder(FixedThresholds, Transcoder):
    """Transcoder with a threshold per feature."""

    method: ClassVar[Method] = "jumprelu-transcoder"


class JumpReluSkipTranscoder(FixedThresholds, SkipTranscoder):
    """Skip transcoder with a threshold per feature."""

    method: ClassVar[Method] = "jumprelu-skip-transcoder"
