"""The best output of a layer without routing: every token gets the same mixing, chosen to fit the MLP.

A median mixing is a weak control for a layer with centred mixing, whose median is nearly zero: frozen there, even a
layer that could do without routing outputs a constant. The best constant mixing has no such blind spot.

Some layers mix outputs, so that each entry is fitted by itself. Others mix a hidden vector z, so that each output of
y = (c * z) U depends on all entries of c; they are fitted together.

Shapes: T tokens, O output width, M entries of the mixing vector.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from mxd.trainer.layers.base import SMALLEST_NORM, SparseLayer
from mxd.trainer.utils.devices import in_float64

SMALLEST_VARIANCE = 1e-12
"""Variance of a dense output below which it counts as constant, so that only the bias is fitted."""
_ZERO = torch.zeros((), dtype=torch.float64)
MAX_JOINT_WIDTH = 4096
"""Largest number of entries that are fitted together. The fit keeps a matrix of M x M numbers."""
RIDGE = 1e-9
"""Weight that keeps the joint fit unique, relative to the mean of the matrix's diagonal."""


@dataclass(frozen=True)
class ConstantMixing:
    """Mixing and bias that replace the routing of every token."""

    mixing_M: Tensor
    bias_O: Tensor
    """Added to the layer's own bias."""

    def output(self, layer: SparseLayer, dense_TM: Tensor) -> Tensor:
        """Output of the layer with this mixing for every token, [T, O]."""
        mixing_M, bias_O = (values.to(dense_TM) for values in (self.mixing_M, self.bias_O))
        return layer.decode_mixed(dense_TM, mixing_M.expand(len(dense_TM), -1)) + bias_O


def constant_mixing_fit(layer: SparseLayer) -> ConstantMixingFit | JointMixingFit | None:
    """The fit for a layer; None if its mixing is not element-wise, or too wide."""
    if layer.mixes_outputs:
        return ConstantMixingFit(layer)
    projection_OM = layer.output_projection
    return (
        None
        if projection_OM is None or projection_OM.shape[1] > MAX_JOINT_WIDTH
        else JointMixingFit(layer, projection_OM)
    )


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
        target_TO = in_float64(target_TO)
        weights_T1 = _weights(target_TO)
        unmixed_TO, b_TO = map(in_float64, _parts(self.layer, dense_TM))
        r_TO = target_TO - unmixed_TO
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


@dataclass
class JointMixingFit:
    """Weighted least squares for all outputs together, with the same weights."""

    layer: SparseLayer
    projection_OM: Tensor
    """U, the map from the mixed hidden vector to the outputs."""
    weight: float = 0.0
    """Sum of the weights."""
    hidden_M: Tensor = _ZERO
    rest_O: Tensor = _ZERO
    """Weighted sums of z, and of the target without the layer's own bias and constant mixing."""
    products_MM: Tensor = _ZERO
    projected_M: Tensor = _ZERO
    """Weighted sums of z z^T, and of z times the rest's products with the rows of U."""

    def add(self, dense_TM: Tensor, target_TO: Tensor) -> None:
        """Add a batch of tokens."""
        unmixed_TO = self.layer.decode_mixed(dense_TM, torch.zeros_like(dense_TM))
        target_TO, unmixed_TO, hidden_TM = map(in_float64, (target_TO, unmixed_TO, dense_TM))
        weights_T1, rest_TO = _weights(target_TO), target_TO - unmixed_TO
        weighted_TM = weights_T1 * hidden_TM
        self.weight += float(weights_T1.sum())
        self.hidden_M = self.hidden_M + weighted_TM.sum(dim=0).cpu()
        self.rest_O = self.rest_O + (weights_T1 * rest_TO).sum(dim=0).cpu()
        self.products_MM = self.products_MM + (weighted_TM.T @ hidden_TM).cpu()
        self.projected_M = self.projected_M + (weighted_TM * (rest_TO @ self._map(rest_TO))).sum(dim=0).cpu()

    def best(self) -> ConstantMixing:
        """Constant mixing and bias with the smallest normalised MSE over the added tokens."""
        map_OM, hidden_M, rest_O = self._map(self.hidden_M), self.hidden_M / self.weight, self.rest_O / self.weight
        covariance_MM = self.products_MM / self.weight - torch.outer(hidden_M, hidden_M)
        matrix_MM = covariance_MM * (map_OM.T @ map_OM)
        target_M = self.projected_M / self.weight - hidden_M * (rest_O @ map_OM)
        ridge = RIDGE * matrix_MM.diagonal().mean().clamp_min(torch.finfo(torch.float64).tiny)
        mixing_M = torch.linalg.solve(matrix_MM + ridge * torch.eye(len(matrix_MM), dtype=torch.float64), target_M)
        return ConstantMixing(mixing_M.float(), (rest_O - map_OM @ (mixing_M * hidden_M)).float())

    def _map(self, like: Tensor) -> Tensor:
        return self.projection_OM.detach().to(like)


def _weights(target_TO: Tensor) -> Tensor:
    """Weight of each token, 1 / ‖y‖², [T, 1]."""
    return 1 / target_TO.square().sum(dim=1, keepdim=True).clamp_min(SMALLEST_NORM)


def _parts(layer: SparseLayer, dense_TM: Tensor) -> tuple[Tensor, Tensor]:
    """Output without mixing, and its change per unit of mixing: two tensors [T, O]."""
    mixing_TO = dense_TM.new_zeros(len(dense_TM), layer.config.output_width)
    unmixed_TO = layer.decode_mixed(dense_TM, mixing_TO)
    return unmixed_TO, layer.decode_mixed(dense_TM, mixing_TO + 1) - unmixed_TO
