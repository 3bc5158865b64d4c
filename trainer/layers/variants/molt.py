"""MOLT: mixture of low-rank transforms of the MLP's input (Anthropic, Transformer Circuits updates, 2025).

    a = TopK(relu(x G + b_gate))
    y = sum_t a_t x V_t U_t + b_out             V_t is [I, r_t], U_t is [r_t, O]

Ranks are mixed: of 31 transforms, one has rank R, two R/2, four R/4, eight R/8 and sixteen R/16. Unlike the experts of
an MxD, transforms share nothing and read x directly. The original is sparse through a penalty on the gates; here it is
sparse through K, like all other methods.

The V_t are concatenated, so z = x V is one product of width S, the sum of the ranks. Then y = (a_S * z) U, with each
gate activation repeated for the columns of its transform.

Shapes: T tokens, I input width, O output width, N transforms, K active transforms, R largest rank, S sum of the ranks.
"""

from __future__ import annotations

from itertools import groupby
from typing import ClassVar

import torch
from torch import Tensor, nn

from mxd.trainer.config import LayerConfig, Method
from mxd.trainer.config.methods import transform_ranks
from mxd.trainer.layers.base import Routing, SparseLayer


class Molt(SparseLayer):
    """Mixture of low-rank transforms. As in an MxD, the last matrix is initialised to zero."""

    method: ClassVar[Method] = "molt"
    mixes_outputs: ClassVar[bool] = False
    expert_tables: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.ranks = transform_ranks(config.num_experts, self.required_rank())
        total = sum(self.ranks)
        self.reader = nn.Linear(config.input_width, total, bias=False)
        self.writer = nn.Linear(total, config.output_width, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(config.output_width))
        nn.init.zeros_(self.writer.weight)

    def dense_output(self, x_TI: Tensor) -> Tensor:
        """x V of all transforms, [T, S]."""
        read_TS: Tensor = self.reader(x_TI)
        return read_TS

    def mixing(self, routing: Routing) -> Tensor:
        """Gate activation of each column's transform, [T, S]."""
        coefficients_TK, indices_TK = routing
        dense_TN = coefficients_TK.new_zeros(len(coefficients_TK), self.config.num_experts)
        dense_TN = dense_TN.scatter_add(1, indices_TK, coefficients_TK)
        # One part for each run of equal ranks. A gather would copy its index to the device in every step.
        runs = [(rank, len(list(run))) for rank, run in groupby(self.ranks)]
        parts = dense_TN.split([count for _, count in runs], dim=1)
        return torch.cat([part.repeat_interleave(rank, 1) for part, (rank, _) in zip(parts, runs, strict=True)], dim=1)

    def contribution(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        added_TO: Tensor = self.writer(self.mixing(routing) * dense_TM)
        return added_TO

    def decode_mixed(self, dense_TM: Tensor, mixing_TM: Tensor) -> Tensor:
        output_TO: Tensor = self.writer(mixing_TM * dense_TM) + self.output_bias
        return output_TO

    @property
    def output_projection(self) -> Tensor:
        """The U_t of all transforms."""
        return self.writer.weight

    def contribution_norms(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        """‖a_t x V_t U_t‖, [T, K]."""
        columns = zip(dense_TM.split(self.ranks, dim=1), self.writer.weight.split(self.ranks, dim=1), strict=True)
        norms_TN = torch.stack([(z_TR @ weight_OR.T).norm(dim=1) for z_TR, weight_OR in columns], dim=1)
        return norms_TN.gather(1, routing.indices_TK) * routing.coefficients_TK.abs()

    @property
    def table(self) -> Tensor:
        """Output direction with the largest gain of each transform, times the gain, [N, O]; computed on every
        access."""
        reads, writes = self.reader.weight.split(self.ranks), self.writer.weight.split(self.ranks, dim=1)
        return torch.stack([_top_direction(v_RI, u_OR) for v_RI, u_OR in zip(reads, writes, strict=True)])

    def expert_matrix(self, expert: int) -> Tensor:
        """V_t U_t, [I, O]; the transform's output is x V_t U_t."""
        first = sum(self.ranks[:expert])
        end = first + self.ranks[expert]
        return self.reader.weight[first:end].T @ self.writer.weight[:, first:end].T


def _top_direction(v_RI: Tensor, u_OR: Tensor) -> Tensor:
    """Left singular vector of U V with the largest singular value, times that value, [O]."""
    triangle_RR = torch.linalg.qr(v_RI.T, mode="r").R
    left, values, _ = torch.linalg.svd(u_OR @ triangle_RR.T, full_matrices=False)
    top: Tensor = left[:, 0] * values[0]
    return top
