"""ReLU-MxD: an MxD without a top-k, as an ablation of the top-k.

a = relu(x G + b_gate)                      every expert with a positive score is active
"""

from __future__ import annotations

from typing import ClassVar

from mxd.trainer.config import Method
from mxd.trainer.layers.mxd import GluMxD, MlpMxD, MxD
from mxd.trainer.layers.variants.dense_gate import DenseGate


class ReluMxD(DenseGate, MxD):
    """MxD whose gate activates every expert with a positive score; K is N."""

    method: ClassVar[Method] = "relu-mxd"


class MlpReluMxD(ReluMxD, MlpMxD):
    """ReLU-MxD for a plain MLP."""


class GluReluMxD(ReluMxD, GluMxD):
    """ReLU-MxD for a gated linear unit."""
