"""Measures of a fitted layer, as pure functions of tensors.

Shapes: T tokens, O output width, N experts, K active.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.layers.sparse import Routing, SparseLayer

SMALLEST_NORM = 1e-12
"""Squared norm under which a target counts as zero, so that no token divides by nothing."""


def normalised_mse(output_TO: Tensor, target_TO: Tensor) -> Tensor:
    """Mean over tokens of ‖ŷ − y‖² / ‖y‖², a scalar without unit: the loss that layers are fitted with."""
    errors_T = (output_TO - target_TO).square().sum(dim=1)
    return (errors_T / target_TO.square().sum(dim=1).clamp_min(SMALLEST_NORM)).mean()


def error_of(layer: SparseLayer, output_TO: Tensor, target_TO: Tensor) -> Tensor:
    """``normalised_mse``; of a layer that writes several MLPs' outputs the mean of theirs, so that each counts alike
    however long its vectors are."""
    pairs = zip(layer.parts(output_TO), layer.parts(target_TO), strict=True)
    return torch.stack([normalised_mse(*pair) for pair in pairs]).mean()


def active_counts(routing: Routing, num_experts: int) -> Tensor:
    """[N]: on how many of the tokens each expert is active."""
    # Neither bincount nor a mask that picks: both wait for the device to learn how large their answer is.
    counts_N = routing.indices_TK.new_zeros(num_experts)
    active_P = (routing.coefficients_TK > 0).reshape(-1)
    return counts_N.scatter_add_(0, routing.indices_TK.reshape(-1), active_P.to(counts_N.dtype))


def l0(routing: Routing) -> Tensor:
    """Mean number of active experts per token, a scalar."""
    return (routing.coefficients_TK > 0).sum(dim=1).float().mean()


def effective_number(counts_N: Tensor) -> float:
    """2 to the power of the entropy of a load: N where all N experts are used alike, 1 where one does it all."""
    share_N = counts_N.double() / counts_N.sum().clamp_min(1)
    positive = share_N[share_N > 0]
    return float(2.0 ** -(positive * positive.log2()).sum())


def gini(counts_N: Tensor) -> float:
    """Gini coefficient of a load: 0 where all experts are used alike, near 1 where one does it all."""
    sorted_N = counts_N.double().sort().values
    count, total = len(sorted_N), sorted_N.sum()
    if total == 0:
        return 0.0
    ranks_N = torch.arange(1, count + 1, dtype=torch.float64, device=sorted_N.device)
    return float(2 * (ranks_N * sorted_N).sum() / (count * total) - (count + 1) / count)
