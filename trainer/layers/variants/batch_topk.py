"""BatchTopK (arXiv 2412.06410) on an MxD: K active experts per token on average, more for tokens that need them.

    training:   keep the T K largest of all scores of T tokens
    inference:  a = relu(s) [s > θ],  with θ the running mean of the smallest score kept in training

At inference, the experts of a token do not depend on the other tokens of the batch. θ is one number for all experts,
saved with the weights. A token has at most 4 K experts, which bounds the width of a routing.

Shapes: T tokens, I input width, N experts, K active experts on average, C candidates per token.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from mxd.trainer.config import LayerConfig, Method
from mxd.trainer.config.methods import max_active
from mxd.trainer.layers.base import Routing
from mxd.trainer.layers.mxd import GluMxD, MlpMxD, MxD

THRESHOLD_UPDATE = 0.02
"""Weight of each step in the running mean, which covers about 50 steps."""
UNSET = -1.0
"""Threshold before training."""


class BatchTopK(MxD):
    """MxD whose gate selects over a batch in training, and by a threshold at inference."""

    method: ClassVar[Method] = "batch-topk-mxd"
    expert_tables: ClassVar[tuple[str, ...]] = ()
    threshold: Tensor

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.register_buffer("threshold", torch.full((1,), UNSET))

    def route(self, x_TI: Tensor) -> Routing:
        """Select the experts of each token, largest gate activation first; unused columns are 0."""
        candidates = min(max_active(self.method, self.config.k), self.config.num_experts)
        coefficients_TC, indices_TC = self.gate.choose(x_TI, candidates)
        threshold = self._batch_threshold(coefficients_TC.detach()) if self.training else self.threshold
        return Routing(coefficients_TC * (coefficients_TC >= threshold), indices_TC)

    def _batch_threshold(self, coefficients_TC: Tensor) -> Tensor:
        """The T K-th largest gate activation of a batch, [1]. Updates the running mean in a training step."""
        count = len(coefficients_TC) * min(self.config.k, coefficients_TC.shape[1])
        smallest = coefficients_TC.flatten().topk(count, sorted=True).values[-1:]
        if torch.is_grad_enabled():
            mean = self.threshold + THRESHOLD_UPDATE * (smallest - self.threshold)
            self.threshold.copy_(torch.where(self.threshold < 0, smallest, mean))
        return smallest


class MlpBatchTopK(BatchTopK, MlpMxD):
    """BatchTopK-MxD for a plain MLP."""


class GluBatchTopK(BatchTopK, GluMxD):
    """BatchTopK-MxD for a gated linear unit."""
