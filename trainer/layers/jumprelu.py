"""Transcoders whose experts are active above thresholds instead of K at a time.

    a = relu(x G + b_gate) * [x G + b_gate > θ]
    y = a W_dec (+ x W_skip) + b_out

With θ = 0 this is a plain ReLU, with a threshold an expert a JumpReLU (arXiv 2407.14435). They come from elsewhere
(``trainer.importing``): their sparsity is owed to a penalty that is not fitted with here.

Shapes: T tokens, I input width, N experts.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.config import LayerConfig, Method
from trainer.layers.baselines import SkipTranscoder, Transcoder
from trainer.layers.every_expert import EveryExpert


class Threshold(EveryExpert):
    """A gate with a threshold an expert, below which it stays out."""

    threshold_N: Tensor

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.register_buffer("threshold_N", torch.zeros(config.num_experts))

    def coefficients(self, x_TI: Tensor) -> Tensor:
        scores_TN: Tensor = self.gate(x_TI)
        return F.relu(scores_TN) * (scores_TN > self.threshold_N)


class JumpReluTranscoder(Threshold, Transcoder):
    """A transcoder whose features are active above thresholds of their own."""

    method: ClassVar[Method] = "jumprelu-transcoder"


class JumpReluSkipTranscoder(Threshold, SkipTranscoder):
    """The same beside a linear map of the input."""

    method: ClassVar[Method] = "jumprelu-skip-transcoder"
