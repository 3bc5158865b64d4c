"""Product-key gate (arXiv 1907.05242): expert (i, j) scores the sum of entry i of one codebook and entry j of another.

    score of (i, j) = x k_i + b_i + x l_j + c_j

This takes A + B ≈ 2 √N dot products, and the K largest of all N sums are exact. At least (r + 1)(s + 1) - 1 experts
score higher than the one with ranks r and s in the codebooks. So only the experts with (r + 1)(s + 1) <= K are
candidates, about K ln K of them. Keys have the full input width rather than half of it: a projection to halves is a
special case, and the gate's compute is small already.

Shapes: T tokens, I input width, N experts, K active experts, A and B codebook entries, P candidates, E some of the
experts.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mxd.trainer.config.gates import codebooks
from mxd.trainer.layers.gates.base import ExpertSelection, Gate, set_rows
from mxd.trainer.layers.gates.clustering import align_columns, cluster
from mxd.trainer.layers.gates.row_sums import ScorePart, coefficients


class ProductKeyGate(Gate):
    """Gate with two codebooks. Expert n is the pair (n // B, n % B); pairs from N on are never selected."""

    def __init__(self, input_width: int, num_experts: int) -> None:
        super().__init__(input_width, num_experts)
        self.first, self.second = (nn.Linear(input_width, entries) for entries in codebooks(num_experts))
        for linear in (self.first, self.second):
            # The sum of two rows then has the norm of one row of torch's Linear.
            linear.weight.data /= math.sqrt(2)
            nn.init.zeros_(linear.bias)

    def choose(self, x_TI: Tensor, k: int) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            scores_TK, ids_TK = largest_sums(*self._scores(x_TI), self.num_experts, k)
        width = self.second.out_features
        parts = (
            ScorePart(self.first.weight, self.first.bias, ids_TK // width),
            ScorePart(self.second.weight, self.second.bias, ids_TK % width),
        )
        return coefficients(x_TI, scores_TK, *parts), ids_TK

    def _scores(self, x_TI: Tensor) -> tuple[Tensor, Tensor]:
        first_TA, second_TB = (F.linear(x_TI, book.weight, book.bias) for book in (self.first, self.second))
        return first_TA, second_TB

    def rows(self, experts: ExpertSelection) -> Tensor:
        ids_E = torch.arange(self.num_experts)[experts].to(self.first.weight.device)
        width = self.second.out_features
        return self.first.weight.detach()[ids_E // width] + self.second.weight.detach()[ids_E % width]

    def initialize(self, directions_NI: Tensor, mean_I: Tensor) -> Tensor:
        """Arrange directions in a grid: similar ones share a row, those with similar offsets from the row mean a
        column.

        First keys are the means of the rows; second keys are the means of the offsets in each column.
        """
        width = self.second.out_features
        order_N = cluster(directions_NI, width)
        full_rows = self.num_experts // width
        grid_AB = align_columns(directions_NI, order_N[: full_rows * width].view(full_rows, width))
        order_N = torch.cat([grid_AB.reshape(-1), order_N[full_rows * width :]])
        first_AI = torch.stack([directions_NI[ids_B].mean(dim=0) for ids_B in order_N.split(width)])
        second_BI = directions_NI[grid_AB].sub_(first_AI[:full_rows].unsqueeze(1)).mean(dim=0)
        length = (first_AI[:full_rows].unsqueeze(1) + second_BI).norm(dim=2).mean()
        scale = directions_NI.norm(dim=1).mean() / length.clamp_min(1e-12)
        set_rows(self.first, first_AI * scale, mean_I)
        set_rows(self.second, second_BI * scale, mean_I)
        return order_N


def largest_sums(first_TA: Tensor, second_TB: Tensor, num_experts: int, k: int) -> tuple[Tensor, Tensor]:
    """Values and ids of the K largest first_i + second_j over all experts n = i B + j: two tensors [T, K].

    If N is no multiple of B, the last entry of ``first`` has fewer partners and is handled separately.
    """
    entries, width = first_TA.shape[1], second_TB.shape[1]
    full_rows = num_experts // width
    candidates = []
    if full_rows:
        candidates.append(_candidates(first_TA[:, :full_rows], second_TB, k))
    if full_rows < entries:
        rest = num_experts - full_rows * width
        values, columns = second_TB[:, :rest].topk(min(k, rest), dim=1)
        candidates.append((values + first_TA[:, full_rows:], columns + full_rows * width))
    values_TP, ids_TP = (torch.cat(parts, dim=1) for parts in zip(*candidates, strict=True))
    values_TK, columns_TK = values_TP.topk(k, dim=1)
    return values_TK, ids_TP.gather(1, columns_TK)


def _candidates(first_TA: Tensor, second_TB: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """All pairs that can be among the K largest sums."""
    width = second_TB.shape[1]
    first, first_ids = first_TA.topk(min(k, first_TA.shape[1]), dim=1)
    second, second_ids = second_TB.topk(min(k, width), dim=1)
    first_P, second_P = torch.tensor(_ranks(first.shape[1], second.shape[1], k), device=first.device)
    return first[:, first_P] + second[:, second_P], first_ids[:, first_P] * width + second_ids[:, second_P]


@lru_cache(maxsize=64)
def _ranks(first: int, second: int, k: int) -> tuple[list[int], list[int]]:
    """Pairs of ranks that can be among the K largest sums."""
    pairs = [(r, s) for r in range(first) for s in range(min(second, k // (r + 1)))]
    return [r for r, _ in pairs], [s for _, s in pairs]
