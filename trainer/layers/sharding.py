"""Gate and mixing of a layer whose experts are sharded over several processes.

Each process holds a slice of the experts and has its own tokens. All tokens are gathered on every process, which scores
them against its own experts and returns its K best. The process of a token selects the K best of all candidates, and
the mixed rows come back as a sum. Both functions equal those of ``ops`` on the whole layer, forward and backward.

Communication per token with W processes: its row goes to W - 1 others, and each of them returns K candidates with their
ids. Then K gate activations with their ids go to each, and each returns a mixed row of O values. The backward pass
sends the same without ids. Scores of all tokens against all experts never leave the process that computed them.

Shapes: t tokens of this process, T = W * t tokens of all, I input width, O output width, N experts, n local experts,
K active experts.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch import distributed as dist
from torch.nn import functional as F

from mxd.trainer.layers.ops import gate, mix
from mxd.trainer.utils.distributed import with_gradient


@dataclass(frozen=True)
class Shards:
    """Slice of the experts that this process holds. All processes have the same number of tokens."""

    rank: int
    world_size: int
    num_experts: int
    """Number of experts N of the whole layer."""
    group: dist.ProcessGroup | None = None
    """Process group; by default all processes."""

    def rows(self, rank: int) -> slice:
        return slice(rank * self.num_experts // self.world_size, (rank + 1) * self.num_experts // self.world_size)

    def all_gather(self, rows: Tensor) -> Tensor:
        """Concatenate the rows [t, …] of all processes, [T, …]."""
        gathered = rows.new_empty(self.world_size * len(rows), *rows.shape[1:])
        # PyTorch 2.13 renamed this function and reduce_scatter_tensor. Older versions lack the new names.
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        gather(gathered, rows.contiguous(), group=self.group)
        return gathered

    def reduce_scatter(self, rows: Tensor) -> Tensor:
        """Sum the rows [T, …] over all processes and keep those of this process's tokens, [t, …]."""
        own = rows.new_empty(len(rows) // self.world_size, *rows.shape[1:])
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        scatter(own, rows.contiguous(), group=self.group)
        return own

    def all_to_all(self, rows: Tensor) -> Tensor:
        """Collect from every process its rows [T, …] for this process's tokens, [T, …]."""
        received = torch.empty_like(rows, memory_format=torch.contiguous_format)
        dist.all_to_all_single(received, rows.contiguous(), group=self.group)
        return received


def sharded_gate(x_tI: Tensor, weight_nI: Tensor, bias_n: Tensor, k: int, shards: Shards) -> tuple[Tensor, Tensor]:
    """``ops.gate`` of the whole layer for this process's tokens; expert ids are global."""
    x_TI = with_gradient(x_tI, shards.all_gather, shards.reduce_scatter)
    offered = min(k, len(weight_nI))
    values_TC, local_TC = gate(x_TI, weight_nI, bias_n, offered)
    # A slice with fewer than K experts pads with candidates that are never selected.
    values_TK = F.pad(values_TC, (0, k - offered), value=-1.0)
    indices_TK = F.pad(local_TC + shards.rows(shards.rank).start, (0, k - offered))
    exchanged = with_gradient(values_TK, shards.all_to_all, shards.all_to_all)
    values_tWK = exchanged.unflatten(0, (shards.world_size, -1)).transpose(0, 1)
    indices_tWK = shards.all_to_all(indices_TK).unflatten(0, (shards.world_size, -1)).transpose(0, 1)
    activations_tK, positions_tK = values_tWK.flatten(1).topk(k, dim=1)
    return activations_tK, indices_tWK.flatten(1).gather(1, positions_tK)


def sharded_mix(activations_tK: Tensor, indices_tK: Tensor, table_nO: Tensor, shards: Shards) -> Tensor:
    """``ops.mix`` of the whole layer for this process's tokens; expert ids are global."""
    activations_TK = with_gradient(activations_tK, shards.all_gather, shards.reduce_scatter)
    indices_TK, own = shards.all_gather(indices_tK), shards.rows(shards.rank)
    is_local_TK = (indices_TK >= own.start) & (indices_TK < own.stop)
    local_TK = torch.where(is_local_TK, indices_TK - own.start, 0)
    partial_TO = mix(torch.where(is_local_TK, activations_TK, 0.0), local_TK, table_nO)
    return with_gradient(partial_TO, shards.reduce_scatter, shards.all_gather)
