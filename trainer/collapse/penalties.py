"""What is added to the loss of a step so that the load is shared and experts differ.

Shapes: T tokens, K active, N experts, C experts that are compared, O output width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.config import CollapseConfig
from trainer.layers.sparse import Routing, SparseLayer
from trainer.metrics import active_counts

COMPARED = 512
"""Experts whose tables are compared with one another on a step."""


def penalty(config: CollapseConfig, routing: Routing, layer: SparseLayer) -> Tensor | None:
    """The weighted sum of what is asked for, and of what the layer itself wants; None where nothing is."""
    parts: list[Tensor] = []
    if config.balance:
        parts.append(config.balance * imbalance(routing, layer.config.num_experts))
    if config.diversity:
        parts.append(config.diversity * sameness(routing, layer.table))
    own = layer.own_penalty(routing)
    if own is not None:
        parts.append(own)
    return torch.stack(parts).sum() if parts else None


def imbalance(routing: Routing, num_experts: int) -> Tensor:
    """N times the sum over experts of share of activations times share of coefficients: 1 where all are used alike, N
    where one does everything (the auxiliary loss of Switch Transformers, arXiv 2101.03961, on coefficients)."""
    flat = routing.indices_TK.reshape(-1)
    coefficients = routing.coefficients_TK.reshape(-1)
    counts_N = active_counts(routing, num_experts).to(coefficients)
    sums_N = coefficients.new_zeros(num_experts).index_add(0, flat, coefficients)
    shares_N = counts_N / counts_N.sum().clamp_min(1)
    return num_experts * (shares_N * (sums_N / sums_N.sum().clamp_min(1e-12))).sum()


def sameness(routing: Routing, table_NO: Tensor) -> Tensor:
    """Mean squared cosine between what different experts of the batch write: 1 where all are the same."""
    used_C, counts_C = _used(routing, len(table_NO))
    rows_CO = F.normalize(table_NO[used_C], dim=1) * counts_C.unsqueeze(1)
    cosines_CC = rows_CO @ rows_CO.T
    number = counts_C.sum()
    pairs = (number * (number - 1)).clamp_min(1)
    return (cosines_CC.square().sum() - cosines_CC.diagonal().square().sum()) / pairs


def _used(routing: Routing, num_experts: int) -> tuple[Tensor, Tensor]:
    """``COMPARED`` ids, evenly over the experts of the batch, [C]; and 1 for each, 0 for those that are one too many.

    Of a fixed size, so that nothing waits for the device to learn how many experts the batch has.
    """
    is_used_N = routing.indices_TK.new_zeros(num_experts).index_fill_(0, routing.indices_TK.reshape(-1), 1)
    first_N = is_used_N.argsort(descending=True, stable=True)  # the used ones, by id
    number = is_used_N.sum()
    places_C = torch.arange(COMPARED, device=number.device) * (number // COMPARED).clamp_min(1)
    return first_N[places_C.clamp_max(num_experts - 1)], (places_C < number).to(routing.coefficients_TK.dtype)
