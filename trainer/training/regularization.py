"""Regularisation: load-balancing loss and random K.

Shapes: T tokens, K active experts, N experts.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mxd.trainer.config import RegularizationConfig, TrainConfig
from mxd.trainer.config.methods import method_traits
from mxd.trainer.layers.base import Routing, SparseLayer
from mxd.trainer.layers.metrics import active_counts


def auxiliary_loss(config: RegularizationConfig, routing: Routing, layer: SparseLayer) -> Tensor | None:
    """Weighted sum of the configured terms and of the method's own term; None if there are none."""
    terms: list[Tensor] = []
    if config.load_balance_weight:
        terms.append(config.load_balance_weight * load_imbalance(routing, layer.config.num_experts))
    method_term = layer.auxiliary_loss(routing)
    if method_term is not None:
        terms.append(method_term)
    return torch.stack(terms).sum() if terms else None


def load_imbalance(routing: Routing, num_experts: int) -> Tensor:
    """Load-balancing loss of Switch Transformers (arXiv 2101.03961), computed on gate activations.

    N times the sum over experts of their share of activations times their share of summed gate activations: 1 if all
    experts are used equally, N if one expert does everything.
    """
    ids = routing.indices_TK.reshape(-1)
    coefficients = routing.coefficients_TK.reshape(-1)
    counts_N = active_counts(routing, num_experts).to(coefficients)
    sums_N = coefficients.new_zeros(num_experts).index_add(0, ids, coefficients)
    shares_N = counts_N / counts_N.sum().clamp_min(1)
    return num_experts * (shares_N * (sums_N / sums_N.sum().clamp_min(1e-12))).sum()


def sample_k(config: TrainConfig, k: int, step: int) -> int:
    """K of a step, uniform within the spread around ``k``; depends only on the seed and the step."""
    spread = round(k * config.regularization.k_spread)
    if spread == 0 or not method_traits(config.method).has_top_k:
        return k
    generator = np.random.default_rng([config.seed, step])
    return int(generator.integers(max(1, k - spread), k + spread + 1))
