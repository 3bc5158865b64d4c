"""Two-level gate: score groups of experts, then only the experts of the best groups.

    score of expert n of group g = x u_g + s_g + x v_n + b_n

An expert's score includes its group's score, so group rows are trained through the experts selected in them: u_g
becomes what the experts have in common, and predicts their scores. With all groups selected, this is a flat gate with
rows u_g + v_n.

Shapes: T tokens, I input width, N experts, K active experts, G groups, S experts per group, C top groups, E some of the
experts.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mxd.trainer.config.gates import Groups
from mxd.trainer.layers.gates.base import ExpertSelection, Gate, set_rows
from mxd.trainer.layers.gates.blocked_topk import merge_blocks, topk_per_block
from mxd.trainer.layers.gates.clustering import cluster
from mxd.trainer.layers.gates.row_sums import ScorePart, coefficients


class TwoLevelGate(Gate):
    """Gate over contiguous groups of experts: expert n is in group n // S."""

    def __init__(self, input_width: int, num_experts: int, groups: Groups) -> None:
        super().__init__(input_width, num_experts)
        self.sizes = groups
        self.groups, self.own = nn.Linear(input_width, groups.number), nn.Linear(input_width, num_experts)
        for linear in (self.groups, self.own):
            # The sum of two rows then has the norm of one row of torch's Linear.
            linear.weight.data /= math.sqrt(2)
            nn.init.zeros_(linear.bias)

    def choose(self, x_TI: Tensor, k: int) -> tuple[Tensor, Tensor]:
        own, size = self.own, self.sizes.size
        with torch.no_grad():
            scores_TG = F.linear(x_TI, self.groups.weight, self.groups.bias)
            group_scores_TC, groups_TC = scores_TG.topk(self.sizes.top, dim=1)
            values_TCK, ids_TCK = topk_per_block(x_TI, own.weight, own.bias, groups_TC, size, k)
            scores_TK, ids_TK = merge_blocks(values_TCK + group_scores_TC.unsqueeze(2), ids_TCK, k)
        parts = (
            ScorePart(self.groups.weight, self.groups.bias, ids_TK // size),
            ScorePart(own.weight, own.bias, ids_TK),
        )
        return coefficients(x_TI, scores_TK, *parts), ids_TK

    def rows(self, experts: ExpertSelection) -> Tensor:
        ids_E = torch.arange(self.num_experts)[experts].to(self.own.weight.device)
        return self.own.weight.detach()[ids_E] + self.groups.weight.detach()[ids_E // self.sizes.size]

    def initialize(self, directions_NI: Tensor, mean_I: Tensor) -> Tensor:
        """Group similar directions and use their mean as the group's row: initial scores equal a flat gate's."""
        order_N = cluster(directions_NI, self.sizes.size)
        grouped = [directions_NI[ids_S] for ids_S in order_N.split(self.sizes.size)]
        means_GI = torch.stack([rows_SI.mean(dim=0) for rows_SI in grouped])
        residuals = [rows_SI - center_I for rows_SI, center_I in zip(grouped, means_GI, strict=True)]
        set_rows(self.groups, means_GI, mean_I)
        set_rows(self.own, torch.cat(residuals), mean_I)
        return order_N
