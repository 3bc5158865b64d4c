"""The gate and the mixing of a layer whose experts are spread over several processes.

Each process holds a slice of the experts and has tokens of its own. The tokens' rows go to everybody, everybody scores
them against its own experts and offers its K best, and the K best of all are chosen where the token came from; the
mixed rows come back as a sum. Both functions are those of ``kernels`` on the whole layer, forward and backward.

With W processes there travel, for each token, its row to W - 1 others, K candidates with their ids from each of them, K
coefficients with their ids to each, and a mixed row of O entries from each; backward the same but for ids. The scores
of all tokens against all experts never leave the processes that made them.

Shapes: t tokens of this process, T = W * t of all, I input width, O output width, N experts, n of them here, K active.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist
from torch.nn import functional as F

from trainer.layers.kernels import gate, mix


@dataclass(frozen=True)
class Shards:
    """Which slice of the experts this process holds. All processes have equally many tokens."""

    rank: int
    world: int
    num_experts: int
    """N."""
    group: dist.ProcessGroup | None = None
    """By default all processes."""

    def bounds(self, rank: int) -> tuple[int, int]:
        """The first expert of a process, and the one after its last."""
        return rank * self.num_experts // self.world, (rank + 1) * self.num_experts // self.world

    def part(self, whole: Tensor) -> Tensor:
        """This process's rows of a table with a row an expert."""
        first, end = self.bounds(self.rank)
        return whole[first:end].clone()

    def whole(self, part: Tensor) -> Tensor:
        """The table of all experts, from the parts of all processes; all must ask."""
        sizes = [end - first for first, end in map(self.bounds, range(self.world))]
        padded = part.new_zeros(max(sizes), *part.shape[1:])
        padded[: len(part)] = part
        every = self.gathered(padded).split(max(sizes))
        return torch.cat([rows[:size] for rows, size in zip(every, sizes, strict=True)])

    def gathered(self, rows: Tensor) -> Tensor:
        """[T, …]: the rows [t, …] of all processes, one after the other."""
        every = rows.new_empty(self.world * len(rows), *rows.shape[1:])
        dist.all_gather_into_tensor(every, rows.contiguous(), group=self.group)
        return every

    def summed(self, rows: Tensor) -> Tensor:
        """[t, …]: of the rows [T, …] that each process has for all tokens, the sum for the tokens of this one."""
        own = rows.new_empty(len(rows) // self.world, *rows.shape[1:])
        dist.reduce_scatter_tensor(own, rows.contiguous(), group=self.group)
        return own

    def exchanged(self, rows: Tensor) -> Tensor:
        """[T, …]: of the rows [T, …] that each process has for all tokens, those for the tokens of this one."""
        others = torch.empty_like(rows, memory_format=torch.contiguous_format)
        dist.all_to_all_single(others, rows.contiguous(), group=self.group)
        return others

    def mine(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Which experts are this process's, and their ids here; some id for the others."""
        first, end = self.bounds(self.rank)
        here = (indices >= first) & (indices < end)
        return here, torch.where(here, indices - first, 0)


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, shards: Shards) -> Tensor:
        ctx.shards = shards
        return shards.gathered(rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.shards.summed(gradient), None


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, shards: Shards) -> Tensor:
        ctx.shards = shards
        return shards.summed(rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.shards.gathered(gradient), None


class _Exchanged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, shards: Shards) -> Tensor:
        ctx.shards = shards
        return shards.exchanged(rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.shards.exchanged(gradient), None


def sharded_gate(x_tI: Tensor, weight_nI: Tensor, bias_n: Tensor, k: int, shards: Shards) -> tuple[Tensor, Tensor]:
    """``kernels.gate`` of the whole layer for this process's tokens; the ids are those of the whole layer."""
    x_TI: Tensor = _Gathered.apply(x_tI, shards)  # type: ignore[no-untyped-call]
    offered = min(k, len(weight_nI))
    values_TC, local_TC = gate(x_TI, weight_nI, bias_n, offered)
    # Slices that have fewer than K experts offer others that are never chosen: all together have K.
    values_TK = F.pad(values_TC, (0, k - offered), value=-1.0)
    indices_TK = F.pad(local_TC + shards.bounds(shards.rank)[0], (0, k - offered))
    exchanged: Tensor = _Exchanged.apply(values_TK, shards)  # type: ignore[no-untyped-call]
    values_tWK = exchanged.unflatten(0, (shards.world, -1)).transpose(0, 1)
    indices_tWK = shards.exchanged(indices_TK).unflatten(0, (shards.world, -1)).transpose(0, 1)
    coefficients_tK, places_tK = values_tWK.flatten(1).topk(k, dim=1)
    return coefficients_tK, indices_tWK.flatten(1).gather(1, places_tK)


def sharded_mix(coefficients_tK: Tensor, indices_tK: Tensor, table_nO: Tensor, shards: Shards) -> Tensor:
    """``kernels.mix`` of the whole layer for this process's tokens, whose ids are those of the whole layer."""
    coefficients_TK: Tensor = _Gathered.apply(coefficients_tK, shards)  # type: ignore[no-untyped-call]
    here_TK, local_TK = shards.mine(shards.gathered(indices_tK))
    partial_TO = mix(torch.where(here_TK, coefficients_TK, 0.0), local_TK, table_nO)
    mixed_tO: Tensor = _Summed.apply(partial_TO, shards)  # type: ignore[no-untyped-call]
    return mixed_tO
