"""Metrics of layers: expert ranks, reconstruction error, activation counts and load.

Shapes: T tokens, H hidden width, O output width, N experts; the linear map W_n of expert n is [H, O].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mxd.trainer.layers.base import SparseLayer, normalized_mse
from mxd.trainer.layers.mxd import MxD, spatial_median


@dataclass(frozen=True)
class ExpertRanks:
    """Ranks of the matrices W_n of a sample of experts."""

    normalized_rank: float
    """Mean of rank / min(H, O)."""
    stable_rank: float
    """Mean of ‖W‖²_F / ‖W‖²₂."""
    min_singular_value: float
    """Smallest singular value over the sample, relative to the largest of the same expert."""
    min_scaling: float
    """Smallest |c_n| over all entries of all experts; a zero entry loses a rank (Lemma 1 of the paper)."""


@torch.no_grad()
def measure_ranks(layer: MxD, experts: Sequence[int]) -> ExpertRanks:
    """Compute the singular values of at least one expert's matrix. Each takes about O³ FLOPs."""
    singular = [torch.linalg.svdvals(small_matrix(layer, expert).double()) for expert in experts]
    full_rank = min(layer.config.hidden_width, layer.config.output_width)
    width, rounding = max(layer.config.hidden_width, layer.config.output_width), torch.finfo(torch.float32).eps
    # Values above float32 rounding count, as in numpy's ``matrix_rank``.
    ranks = [int((values > float(values[0]) * width * rounding).sum()) for values in singular]
    shares = [values / values[0].clamp_min(torch.finfo(values.dtype).tiny) for values in singular]
    return ExpertRanks(
        normalized_rank=sum(ranks) / len(ranks) / full_rank,
        stable_rank=sum(float(share.square().sum()) for share in shares) / len(shares),
        min_singular_value=min(float(share[full_rank - 1]) if len(share) >= full_rank else 0.0 for share in shares),
        min_scaling=layer.scaling_NO.abs().min().item(),
    )


def small_matrix(layer: MxD, expert: int) -> Tensor:
    """Smaller matrix with the singular values of W_n: its QR factor R if W_n is tall. Float32 on the CPU. GPUs are no
    faster for one matrix, and MPS has no decompositions and no float64."""
    matrix_HO = layer.expert_matrix(expert).float().cpu()
    if matrix_HO.shape[0] <= matrix_HO.shape[1]:
        return matrix_HO
    square_OO: Tensor = torch.linalg.qr(matrix_HO, mode="r").R
    return square_OO


MEDIAN_STEPS = 20
"""Iterations for the typical mixing of a batch."""


@torch.no_grad()
def output_routing_share(layer: SparseLayer, x_TI: Tensor, target_TO: Tensor) -> float:
    """Return the normalised MSE with the mixing frozen at its median over tokens, divided by that of the mean target.
    It is the routing share of an evaluation, measured on the outputs instead of the loss. 0: the routing does
    nothing."""
    mixing_TM = layer.mixing(layer.route(x_TI))
    typical_M = spatial_median(mixing_TM, mixing_TM.mean(dim=0), steps=MEDIAN_STEPS)
    frozen_TO = layer.decode_mixed(layer.dense_output(x_TI), typical_M.expand_as(mixing_TM))
    mean_TO = target_TO.mean(dim=0).expand_as(target_TO)
    return float(normalized_mse(frozen_TO, target_TO) / normalized_mse(mean_TO, target_TO))


def effective_number(counts_N: Tensor) -> float:
    """2 to the power of the load's entropy: N if all experts are used equally, 1 if one does everything."""
    share_N = counts_N.double() / counts_N.sum().clamp_min(1)
    positive = share_N[share_N > 0]
    return float(2.0 ** -(positive * positive.log2()).sum())


def gini(counts_N: Tensor) -> float:
    """Gini coefficient of the load: 0 if all experts are used equally, near 1 if one does everything."""
    sorted_N = counts_N.double().sort().values
    count, total = len(sorted_N), sorted_N.sum()
    if total == 0:
        return 0.0
    ranks_N = torch.arange(1, count + 1, dtype=torch.float64, device=sorted_N.device)
    return float(2 * (ranks_N * sorted_N).sum() / (count * total) - (count + 1) / count)
