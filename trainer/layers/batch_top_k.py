"""BatchTopK (arXiv 2412.06410) on an MxD: K experts a token on average, more where a token needs them.

    fitting:     the T K largest of all scores of T tokens are let through
    afterwards:  a = relu(s) [s > θ],  θ the running mean of the smallest score that fitting let through

So what a token's experts are never depends on the tokens beside it, once the layer is fitted. θ is one number for all
experts, kept with the weights. A token has four times K experts at most, which keeps a routing as narrow as that.

Shapes: T tokens, I input width, N experts, K active on average, C candidates of a token.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from trainer.config import LayerConfig, Method
from trainer.gate_config import GateForm
from trainer.layers.mxd import GluMxD, MlpMxD, MxD
from trainer.layers.sparse import Routing
from trainer.methods import routed_columns

RATE = 0.02
"""Share of a step's smallest chosen score in the threshold: the last 50 steps make it."""
UNKNOWN = -1.0
"""Threshold of a layer that was never fitted."""


class BatchTopK(MxD):
    """An MxD whose gate chooses over a batch while it is fitted, and by a threshold afterwards."""

    method: ClassVar[Method] = "batch-topk-mxd"
    expert_tables: ClassVar[tuple[str, ...]] = ()
    gates: ClassVar[frozenset[GateForm]] = frozenset({"flat"})
    threshold: Tensor

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.register_buffer("threshold", torch.full((1,), UNKNOWN))

    def route(self, x_TI: Tensor) -> Routing:
        """The experts of each token, largest coefficient first; of columns that no expert has, 0."""
        candidates = min(routed_columns(self.method, self.config.k), self.config.num_experts)
        coefficients_TC, indices_TC = self.gate.choose(x_TI, candidates)
        least = self._smallest_chosen(coefficients_TC.detach()) if self.training else self.threshold
        return Routing(coefficients_TC * (coefficients_TC >= least), indices_TC)

    def _smallest_chosen(self, coefficients_TC: Tensor) -> Tensor:
        """The T K-th largest coefficient of a batch, [1]; learnt where this is a step of fitting."""
        wanted = len(coefficients_TC) * min(self.config.k, coefficients_TC.shape[1])
        least = coefficients_TC.flatten().topk(wanted, sorted=True).values[-1:]
        if torch.is_grad_enabled():
            moved = self.threshold + RATE * (least - self.threshold)
            self.threshold.copy_(torch.where(self.threshold < 0, least, moved))
        return least


class MlpBatchTopK(BatchTopK, MlpMxD):
    """BatchTopK-MxD for a plain MLP."""


class GluBatchTopK(BatchTopK, GluMxD):
    """BatchTopK-MxD for a gated linear unit."""
