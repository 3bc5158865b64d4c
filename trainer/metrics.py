"""Measures of a fitted layer, as pure functions of tensors.

Shapes: T tokens, O output width, N experts, K active.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.layers.sparse import Routing

SMALLEST_NORM = 1e-12
"""Squared norm under which a target counts as zero, so that no token divides by nothing."""


def normalised_mse(output_TO: Tensor, target_TO: Tensor) -> Tensor:
    """Mean over tokens of ‖ŷ − y‖² / ‖y‖², a scalar without unit: the loss that layers are fitted with."""
    errors_T = (output_TO - target_TO).square().sum(dim=1)
    return (errors_T / target_TO.square().sum(dim=1).clamp_min(SMALLEST_NORM)).mean()


def active_counts(routing: Routing, num_experts: int) -> Tensor:
    """[N]: on how many of the tokens each expert is active."""
    return torch.bincount(routing.indices_TK[routing.coefficients_TK > 0], minlength=num_experts)


def l0(routing: Routing) -> Tensor:
    """Mean number of active experts per token, a scalar."""
    return (routing.coefficients_TK > 0).sum(dim=1).float().mean()
