"""Product keys (arXiv 1907.05242): expert (i, j) scores the sum of entry i of one codebook and entry j of another.

    score of (i, j) = x k_i + b_i + x l_j + c_j

Only A + B of about 2 √N dot products are made, and the K largest of all N sums are found exactly: an expert of ranks r
and s in the codebooks has (r + 1)(s + 1) - 1 others before it, so those with (r + 1)(s + 1) <= K are all that can be
among the K; about K ln K of them. Keys are as wide as the input and not halves of it: with any
projection in front they would be a special case of these, and the gate's own arithmetic is small already.

Shapes: T tokens, I input width, N experts, K active, A and B entries of the codebooks, P candidates, E some experts.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor, nn

from trainer.gate_config import codebooks
from trainer.layers.gates.base import Gate, Some, point
from trainer.layers.gates.blocks import scores_of
from trainer.layers.gates.grouping import in_columns, in_groups
from trainer.layers.gates.sums import Part, coefficients


class ProductKeyGate(Gate):
    """Two codebooks; expert n is the pair (n // B, n % B), and pairs from N on are never chosen."""

    def __init__(self, input_width: int, num_experts: int) -> None:
        super().__init__(input_width, num_experts)
        self.first, self.second = (nn.Linear(input_width, entries) for entries in codebooks(num_experts))
        for linear in (self.first, self.second):
            # A sum of two rows is as long as one that torch's Linear draws.
            linear.weight.data /= math.sqrt(2)
            nn.init.zeros_(linear.bias)

    def choose(self, x_TI: Tensor, k: int) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            scores_TK, ids_TK = largest_sums(*self._scores(x_TI), self.num_experts, k)
        width = self.second.out_features
        parts = (
            Part(self.first.weight, self.first.bias, ids_TK // width),
            Part(self.second.weight, self.second.bias, ids_TK % width),
        )
        return coefficients(x_TI, scores_TK, *parts), ids_TK

    def _scores(self, x_TI: Tensor) -> tuple[Tensor, Tensor]:
        first_TA, second_TB = (scores_of(x_TI, book.weight, book.bias) for book in (self.first, self.second))
        return first_TA, second_TB

    def rows(self, some: Some) -> Tensor:
        ids_E = torch.arange(self.num_experts)[some].to(self.first.weight.device)
        width = self.second.out_features
        return self.first.weight.detach()[ids_E // width] + self.second.weight.detach()[ids_E % width]

    def start(self, directions_NI: Tensor, mean_I: Tensor) -> Tensor:
        """Directions are put in a grid: alike ones in a row, and in each row those that differ from its mean in the
        same way in the same column. Keys are the means of rows, and of what is left in columns."""
        width = self.second.out_features
        order_N = in_groups(directions_NI, width)
        whole = self.num_experts // width
        grid_AB = in_columns(directions_NI, order_N[: whole * width].view(whole, width))
        order_N = torch.cat([grid_AB.reshape(-1), order_N[whole * width :]])
        first_AI = torch.stack([directions_NI[ids_B].mean(dim=0) for ids_B in order_N.split(width)])
        second_BI = directions_NI[grid_AB].sub_(first_AI[:whole].unsqueeze(1)).mean(dim=0)
        length = (first_AI[:whole].unsqueeze(1) + second_BI).norm(dim=2).mean()
        scale = directions_NI.norm(dim=1).mean() / length.clamp_min(1e-12)
        point(self.first, first_AI * scale, mean_I)
        point(self.second, second_BI * scale, mean_I)
        return order_N


def largest_sums(first_TA: Tensor, second_TB: Tensor, num_experts: int, k: int) -> tuple[Tensor, Tensor]:
    """Values and experts of the K largest of first_i + second_j over all experts n = i B + j, two tensors [T, K].

    Where N is no multiple of B the last entry of ``first`` has fewer partners, and is looked at by itself.
    """
    entries, width = first_TA.shape[1], second_TB.shape[1]
    whole = num_experts // width
    found = []
    if whole:
        found.append(_candidates(first_TA[:, :whole], second_TB, k))
    if whole < entries:
        rest = num_experts - whole * width
        values, places = second_TB[:, :rest].topk(min(k, rest), dim=1)
        found.append((values + first_TA[:, whole:], places + whole * width))
    values_TP, ids_TP = (torch.cat(parts, dim=1) for parts in zip(*found, strict=True))
    values_TK, places_TK = values_TP.topk(k, dim=1)
    return values_TK, ids_TP.gather(1, places_TK)


def _candidates(first_TA: Tensor, second_TB: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """All that can be among the K largest sums."""
    width = second_TB.shape[1]
    first, first_ids = first_TA.topk(min(k, first_TA.shape[1]), dim=1)
    second, second_ids = second_TB.topk(min(k, width), dim=1)
    one_P, other_P = torch.tensor(_ranks(first.shape[1], second.shape[1], k), device=first.device)
    return first[:, one_P] + second[:, other_P], first_ids[:, one_P] * width + second_ids[:, other_P]


@lru_cache(maxsize=64)
def _ranks(first: int, second: int, k: int) -> tuple[list[int], list[int]]:
    """Pairs of ranks that fewer than K others come before for certain."""
    pairs = [(r, s) for r in range(first) for s in range(min(second, k // (r + 1)))]
    return [r for r, _ in pairs], [s for _, s in pairs]
