"""What is added to the loss of a step so that the load is shared and experts differ.

Shapes: T tokens, K active, N experts, O output width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.config import CollapseConfig
from trainer.layers.sparse import Routing, SparseLayer

COMPARED = 512
"""Experts whose tables are compared with one another on a step."""


def penalty(config: CollapseConfig, routing: Routing, layer: SparseLayer) -> Tensor | None:
    """The weighted sum of what is asked for; None where nothing is."""
    parts: list[Tensor] = []
    if config.balance:
        parts.append(config.balance * imbalance(routing, layer.config.num_experts))
    if config.diversity:
        parts.append(config.diversity * sameness(routing, layer.table))
    return torch.stack(parts).sum() if parts else None


def imbalance(routing: Routing, num_experts: int) -> Tensor:
    """N times the sum over experts of share of activations times share of coefficients: 1 where all are used alike, N
    where one does everything (the auxiliary loss of Switch Transformers, arXiv 2101.03961, on coefficients)."""
    flat = routing.indices_TK.reshape(-1)
    coefficients = routing.coefficients_TK.reshape(-1)
    counts_N = torch.bincount(flat[coefficients > 0], minlength=num_experts).to(coefficients)
    sums_N = coefficients.new_zeros(num_experts).index_add(0, flat, coefficients)
    shares_N = counts_N / counts_N.sum().clamp_min(1)
    return num_experts * (shares_N * (sums_N / sums_N.sum().clamp_min(1e-12))).sum()


def sameness(routing: Routing, table_NO: Tensor) -> Tensor:
    """Mean squared cosine between what different experts of the batch write: 1 where all are the same."""
    used = routing.indices_TK.unique()
    used = used[:: max(1, len(used) // COMPARED)][:COMPARED]
    rows_NO = F.normalize(table_NO[used], dim=1)
    cosines_NN = rows_NO @ rows_NO.T
    pairs = max(1, len(used) * (len(used) - 1))
    return (cosines_NN.square().sum() - cosines_NN.diagonal().square().sum()) / pairs
