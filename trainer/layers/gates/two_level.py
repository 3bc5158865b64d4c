"""Two levels: groups of experts are scored, then the experts of the best groups alone.

    score of expert n of group g = x u_g + s_g + x v_n + b_n

An expert's score includes its group's, so groups are fitted through the experts that were chosen in them: u_g becomes
what they have in common, and promises well where they do. With all groups chosen this is a flat gate with rows
u_g + v_n.

Shapes: T tokens, I input width, N experts, K active, G groups, S experts of a group, C chosen groups, E some experts.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from trainer.gate_config import Groups
from trainer.layers.gates.base import Gate, Some, point
from trainer.layers.gates.blocks import largest_of_all, largest_of_blocks, scores_of
from trainer.layers.gates.grouping import in_groups
from trainer.layers.gates.sums import Part, coefficients


class TwoLevelGate(Gate):
    """Groups of experts that stand one after the other: expert n is in group n // S."""

    def __init__(self, input_width: int, num_experts: int, groups: Groups) -> None:
        super().__init__(input_width, num_experts)
        self.sizes = groups
        self.groups, self.own = nn.Linear(input_width, groups.number), nn.Linear(input_width, num_experts)
        for linear in (self.groups, self.own):
            # A sum of two rows is as long as one that torch's Linear draws.
            linear.weight.data /= math.sqrt(2)
            nn.init.zeros_(linear.bias)

    def choose(self, x_TI: Tensor, k: int) -> tuple[Tensor, Tensor]:
        own, size = self.own, self.sizes.size
        with torch.no_grad():
            scores_TG = scores_of(x_TI, self.groups.weight, self.groups.bias)
            of_groups_TC, groups_TC = scores_TG.topk(self.sizes.chosen, dim=1)
            values_TCK, ids_TCK = largest_of_blocks(x_TI, own.weight, own.bias, groups_TC, size, k)
            scores_TK, ids_TK = largest_of_all(values_TCK + of_groups_TC.unsqueeze(2), ids_TCK, k)
        parts = (
            Part(self.groups.weight, self.groups.bias, ids_TK // size),
            Part(own.weight, own.bias, ids_TK),
        )
        return coefficients(x_TI, scores_TK, *parts), ids_TK

    def rows(self, some: Some) -> Tensor:
        ids_E = torch.arange(self.num_experts)[some].to(self.own.weight.device)
        return self.own.weight.detach()[ids_E] + self.groups.weight.detach()[ids_E // self.sizes.size]

    def start(self, directions_NI: Tensor, mean_I: Tensor) -> Tensor:
        """Alike directions are in a group, whose own is their mean: at first the scores are a flat gate's."""
        order_N = in_groups(directions_NI, self.sizes.size)
        ordered = [directions_NI[ids_S] for ids_S in order_N.split(self.sizes.size)]
        means_GI = torch.stack([rows_SI.mean(dim=0) for rows_SI in ordered])
        left = [rows_SI - mean for rows_SI, mean in zip(ordered, means_GI, strict=True)]
        point(self.groups, means_GI, mean_I)
        point(self.own, torch.cat(left), mean_I)
        return order_N
