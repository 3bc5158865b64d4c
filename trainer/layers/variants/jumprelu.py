"""JumpReLU (arXiv 2407.14435) on an MxD: every expert has its own learned threshold.

    a_n = relu(s_n) [s_n > θ_n],    s = x G + b_gate

A step function has no gradient, so thresholds use a straight-through estimator: the gradient of a window of width ε
above the threshold. Raising θ_n slightly would deactivate the expert on tokens whose score is just above. Two terms act
on a threshold: the reconstruction error, and (L0 / K − 1)², which targets K active experts on average. The latter
replaces the paper's L0 weight, as in later autoencoders with a target L0.

Thresholds are initialised at the T K-th largest score of the first step, as in BatchTopK. They are learned as factors
of that level, so step sizes do not depend on the scale of the scores. ε is relative to the level too.

Shapes: T tokens, I input width, N experts, K active experts on average.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from mxd.trainer.config import LayerConfig, Method
from mxd.trainer.layers.base import Routing
from mxd.trainer.layers.mxd import GluMxD, MlpMxD, MxD
from mxd.trainer.layers.transcoders import SkipTranscoder, Transcoder
from mxd.trainer.layers.variants.dense_gate import DenseGate

WINDOW = 0.3
"""ε, relative to the initial threshold."""
SPARSITY_WEIGHT = 1.0
"""Weight of (L0 / K − 1)² in the loss, beside the normalised MSE."""


class _Jump(torch.autograd.Function):
    """relu(s) [s > θ], with the window gradient for θ."""

    @staticmethod
    def forward(ctx: Any, scores_TN: Tensor, threshold_N: Tensor, window: Tensor) -> Tensor:
        coefficients_TN = F.relu(scores_TN) * (scores_TN > threshold_N)
        ctx.save_for_backward(coefficients_TN, threshold_N, window)
        ctx.save_for_forward(coefficients_TN)
        return coefficients_TN

    @staticmethod
    def jvp(ctx: Any, tangent_TN: Tensor, _threshold: None, _window: None) -> Tensor:
        """Derivative along a tangent of the scores; the thresholds have none."""
        (coefficients_TN,) = ctx.saved_tensors
        return torch.where(coefficients_TN > 0, tangent_TN, 0.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_TN: Tensor) -> tuple[Tensor, Tensor, None]:
        coefficients_TN, threshold_N, window = ctx.saved_tensors
        to_scores = torch.where(coefficients_TN > 0, gradient_TN, 0.0)
        near_TN = _near(coefficients_TN, threshold_N, window)
        return to_scores, -(threshold_N / window) * (near_TN * gradient_TN).sum(dim=0), None


class _MeanActive(torch.autograd.Function):
    """Mean number of active experts, with the window gradient for θ."""

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
    """Mask of gate activations within the window above their threshold."""
    return (coefficients_TN > 0) & (coefficients_TN < threshold_N + window)


class JumpReluMxD(DenseGate, MxD):
    """MxD with a learned threshold per expert. A routing has one column per expert."""

    method: ClassVar[Method] = "jumprelu-mxd"
    level: Tensor

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.log_factor_N = nn.Parameter(torch.zeros(config.num_experts))
        self.register_buffer("level", torch.zeros(1))
        self._has_level = False

    @property
    def threshold_N(self) -> Tensor:
        """Thresholds θ; positive once training has started."""
        return self.level * self.log_factor_N.exp()

    def coefficients(self, x_TI: Tensor) -> Tensor:
        """Gate activations of all experts, [T, N]; 0 if inactive."""
        scores_TN: Tensor = self.gate(x_TI)
        if self.training and not self._has_level:
            self._initialize_level(scores_TN.detach())
            self._has_level = torch.is_grad_enabled()  # initialisation reads other tokens than the first step
        jumped: Tensor = _Jump.apply(scores_TN, self.threshold_N, WINDOW * self.level)  # type: ignore[no-untyped-call]
        return jumped

    def auxiliary_loss(self, routing: Routing) -> Tensor:
        """Weighted sparsity term, (L0 / K − 1)²."""
        active: Tensor = _MeanActive.apply(  # type: ignore[no-untyped-call]
            routing.coefficients_TK, self.threshold_N, WINDOW * self.level
        )
        return SPARSITY_WEIGHT * (active / self.config.k - 1).square()

    def _initialize_level(self, scores_TN: Tensor) -> None:
        """Set the level, unless it was loaded from a checkpoint."""
        count = len(scores_TN) * min(self.config.k, scores_TN.shape[1])
        smallest = scores_TN.flatten().topk(count).values[-1:].clamp_min(torch.finfo(scores_TN.dtype).tiny)
        self.level.copy_(torch.where(self.level == 0, smallest, self.level))


class MlpJumpReluMxD(JumpReluMxD, MlpMxD):
    """JumpReLU-MxD for a plain MLP."""


class GluJumpReluMxD(JumpReluMxD, GluMxD):
    """JumpReLU-MxD for a gated linear unit."""


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
