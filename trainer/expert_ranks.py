"""How full the ranks of experts are: W_n, the linear map of expert n, taken apart into singular values.

Shapes: H hidden width, O output width, E experts that are looked at; W_n is [H, O].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.layers.mxd import MxD


@dataclass(frozen=True)
class ExpertRanks:
    """Experts as matrices W_n, over a sample of them."""

    normalised_rank: float
    """Mean of rank / min(H, O)."""
    stable_rank: float
    """Mean of ‖W‖²_F / ‖W‖²₂."""
    smallest_singular_value: float
    """Smallest over the sample, as a share of the largest one of its expert."""
    smallest_scaling: float
    """Smallest |c_n| over all entries of all experts: at 0 a rank is lost (Lemma 1 of the paper)."""


@torch.no_grad()
def measure_ranks(layer: MxD, experts: Sequence[int]) -> ExpertRanks:
    """Take apart the matrices of some experts, at least one. Takes about O³ operations each."""
    singular = [torch.linalg.svdvals(small_matrix(layer, expert).double()) for expert in experts]
    full = min(layer.config.hidden_width, layer.config.output_width)
    ranks = [_rank(values, max(layer.config.hidden_width, layer.config.output_width)) for values in singular]
    shares = [values / values[0].clamp_min(torch.finfo(values.dtype).tiny) for values in singular]
    return ExpertRanks(
        normalised_rank=sum(ranks) / len(ranks) / full,
        stable_rank=sum(float(share.square().sum()) for share in shares) / len(shares),
        smallest_singular_value=min(float(share[full - 1]) if len(share) >= full else 0.0 for share in shares),
        smallest_scaling=layer.scaling_NO.abs().min().item(),
    )


def small_matrix(layer: MxD, expert: int) -> Tensor:
    """A square matrix with the singular values of W_n, so that a tall one is not taken apart whole."""
    matrix_HO = layer.expert_matrix(expert)
    if matrix_HO.shape[0] <= matrix_HO.shape[1]:
        return matrix_HO
    square_OO: Tensor = torch.linalg.qr(matrix_HO, mode="r").R
    return square_OO


def _rank(singular: Tensor, width: int) -> int:
    """Singular values above float32's rounding of a matrix so wide, as in numpy's ``matrix_rank``."""
    tolerance = float(singular[0]) * width * torch.finfo(torch.float32).eps
    return int((singular > tolerance).sum())
