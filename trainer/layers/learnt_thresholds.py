"""JumpReLU (arXiv 2407.14435) on an MxD: every expert has a threshold of its own, learnt with the rest.

    a_n = relu(s_n) [s_n > θ_n],    s = x G + b_gate

A threshold has no gradient where it matters, so it is given that of a window of width ε above it: raising θ_n by a
little would switch off the tokens whose score is just above. Two things pull at it: the error, which wants what these
tokens' coefficients are worth, and ``sparsity``, (L0 / K − 1)², which wants K experts a token on average and stands in
the place of the paper's weight on L0 (as in later autoencoders that are fitted to a wanted L0).

The thresholds begin as BatchTopK would set one for all, at the first step's T K-th largest score, and are learnt as
factors of that level, so that a step moves them by a share of what they are, whatever the scale of the scores. ε is a
share of the level too.

Shapes: T tokens, I input width, N experts, K wanted on average.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from trainer.config import LayerConfig, Method
from trainer.layers.every_expert import EveryExpert
from trainer.layers.mxd import GluMxD, MlpMxD, MxD
from trainer.layers.sparse import Routing

WINDOW = 0.3
"""ε in units of the level that the thresholds begin at."""
WEIGHT = 1.0
"""Of ``sparsity`` in the loss, whose other part is the normalised MSE."""


class _Jump(torch.autograd.Function):
    """relu(s) [s > θ]; to θ comes what just above it is worth."""

    @staticmethod
    def forward(ctx: Any, scores_TN: Tensor, threshold_N: Tensor, window: Tensor) -> Tensor:
        coefficients_TN = F.relu(scores_TN) * (scores_TN > threshold_N)
        ctx.save_for_backward(coefficients_TN, threshold_N, window)
        return coefficients_TN

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_TN: Tensor) -> tuple[Tensor, Tensor, None]:
        coefficients_TN, threshold_N, window = ctx.saved_tensors
        to_scores = torch.where(coefficients_TN > 0, gradient_TN, 0.0)
        near_TN = _near(coefficients_TN, threshold_N, window)
        return to_scores, -(threshold_N / window) * (near_TN * gradient_TN).sum(dim=0), None


class _MeanActive(torch.autograd.Function):
    """Mean number of active experts; to θ comes how many tokens are just above it."""

    @staticmethod
    def forward(ctx: Any, coefficients_TN: Tensor, threshold_N: Tensor, window: Tensor) -> Tensor:
        ctx.save_for_backward(coefficients_TN, threshold_N, window)
        return (coefficients_TN > 0).sum(dim=1).float().mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, None]:
        coefficients_TN, threshold_N, window = ctx.saved_tensors
        near_N = _near(coefficients_TN, threshold_N, window).float().mean(dim=0)
        return None, -(gradient / window) * near_N, None


def _near(coefficients_TN: Tensor, threshold_N: Tensor, window: Tensor) -> Tensor:
    """Where an active coefficient is within the window above its threshold."""
    return (coefficients_TN > 0) & (coefficients_TN < threshold_N + window)


class LearntThresholds(EveryExpert, MxD):
    """An MxD whose experts are active above thresholds that are learnt; a routing has a column for every expert."""

    method: ClassVar[Method] = "jumprelu-mxd"
    level: Tensor

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.log_factor_N = nn.Parameter(torch.zeros(config.num_experts))
        self.register_buffer("level", torch.zeros(1))
        self._has_begun = False

    @property
    def threshold_N(self) -> Tensor:
        """θ, positive once fitting has begun."""
        return self.level * self.log_factor_N.exp()

    def coefficients(self, x_TI: Tensor) -> Tensor:
        """Of every expert, [T, N]; 0 where it is not active."""
        scores_TN: Tensor = self.gate(x_TI)
        if self.training and not self._has_begun:
            self._begin(scores_TN.detach())
            self._has_begun = torch.is_grad_enabled()  # starting values look at other tokens than the first step
        jumped: Tensor = _Jump.apply(scores_TN, self.threshold_N, WINDOW * self.level)  # type: ignore[no-untyped-call]
        return jumped

    def own_penalty(self, routing: Routing) -> Tensor:
        """(L0 / K − 1)², weighted."""
        active: Tensor = _MeanActive.apply(  # type: ignore[no-untyped-call]
            routing.coefficients_TK, self.threshold_N, WINDOW * self.level
        )
        return WEIGHT * (active / self.config.k - 1).square()

    def _begin(self, scores_TN: Tensor) -> None:
        """Set the level, unless it comes from a checkpoint."""
        wanted = len(scores_TN) * min(self.config.k, scores_TN.shape[1])
        least = scores_TN.flatten().topk(wanted).values[-1:].clamp_min(torch.finfo(scores_TN.dtype).tiny)
        self.level.copy_(torch.where(self.level == 0, least, self.level))


class MlpLearntThresholds(LearntThresholds, MlpMxD):
    """JumpReLU-MxD for a plain MLP."""


class GluLearntThresholds(LearntThresholds, GluMxD):
    """JumpReLU-MxD for a gated linear unit."""
