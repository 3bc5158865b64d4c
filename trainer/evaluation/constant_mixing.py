"""The best output of a layer without routing: every token gets the same mixing, chosen to fit the MLP.

A median mixing is a weak control for a layer with centred mixing, whose median is nearly zero: frozen there, even a
layer that could do without routing outputs a constant. The best constant mixing has no such blind spot.

Shapes: T tokens, O output width, M entries of the mixing vector.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.layers.metrics import SMALLEST_NORM

SMALLEST_VARIANCE = 1e-12
"""Variance of a dense output below which it counts as constant, so that only the bias is fitted."""


@dataclass(frozen=True)
class ConstantMixing:
    """Mixing and bias that replace the routing of every token."""

    mixing_O: Tensor
    bias_O: Tensor
    """Added to the layer's own bias."""

    def output(self, layer: SparseLayer, dense_TM: Tensor) -> Tensor:
        """Output of the layer with this mixing for every token, [T, O]."""
        mixing_O, bias_O = (values.to(dense_TM) for values in (self.mixing_O, self.bias_O))
        unmixed_TO, per_unit_TO = _parts(layer, dense_TM)
        return unmixed_TO + per_unit_TO * mixing_O + bias_O


@dataclass
class ConstantMixingFit:
    """Weighted least squares for each output, from sums over batches. The weight of a token is 1 / ‖y‖², as in the
    normalised MSE, so that a few tokens with massive activations do not decide the fit.
    """

    layer: SparseLayer
    sums: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    """Weighted sums over tokens of 1, b, r, b² and b r, [5, O], with b the output per unit of mixing and r the rest."""

    def add(self, dense_TM: Tensor, target_TO: Tensor) -> None:
        """Add a batch of tokens."""
        weights_T1 = 1 / target_TO.double().square().sum(dim=1, keepdim=True).clamp_min(SMALLEST_NORM)
        unmixed_TO, b_TO = (part.double() for part in _parts(self.layer, dense_TM))
        r_TO = target_TO.double() - unmixed_TO
        terms = (torch.ones_like(b_TO), b_TO, r_TO, b_TO.square(), b_TO * r_TO)
        self.sums = self.sums + torch.stack([(weights_T1 * term_TO).sum(dim=0) for term_TO in terms]).cpu()

    def best(self) -> ConstantMixing:
        """Constant mixing and bias with the smallest normalised MSE over the added tokens."""
        b_O, r_O, squares_O, products_O = self.sums[1:] / self.sums[0]
        variance_O = squares_O - b_O.square()
        covariance_O = products_O - b_O * r_O
        is_constant_O = variance_O <= SMALLEST_VARIANCE * squares_O
        mixing_O = torch.where(is_constant_O, 0.0, covariance_O / variance_O.clamp_min(torch.finfo(b_O.dtype).tiny))
        return ConstantMixing(mixing_O.float(), (r_O - mixing_O * b_O).float())


def _parts(layer: SparseLayer, dense_TM: Tensor) -> tuple[Tensor, Tensor]:
    """Output without mixing, and its change per unit of mixing: two tensors [T, O]."""
    mixing_TO = dense_TM.new_zeros(len(dense_TM), layer.config.output_width)
    unmixed_TO = layer.decode_mixed(dense_TM, mixing_TO)
    return unmixed_TO, layer.decode_mixed(dense_TM, mixing_TO + 1) - unmixed_TO
