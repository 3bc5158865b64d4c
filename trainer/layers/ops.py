"""The two sparse operations of a layer, with hand-written backward passes, and both on sharded experts.

Only K of N experts are active on a token. Scores are the only tensor of size T x N, and they are computed block by
block. The backward passes sort the (token, expert) pairs by expert, once for all of them, then sum the rows of each
expert. So they need no atomics and no gradient of size T x N, and the result is deterministic. A score that ReLU set to
zero gets zero gradient.

The plain operations of this module run on any device. On a CUDA or ROCm GPU on which they can be compiled, the kernels
of ``triton_ops`` with the same interface replace them.

Shapes: T tokens, I input width, O output width, W row width, N experts, K active experts, P = T * K pairs. With sharded
experts, t tokens of this process, T tokens of all processes, n local experts, C candidates.
"""

import sys
import warnings
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from subprocess import CalledProcessError
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch import distributed as dist
from torch._C import _are_functorch_transforms_active
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from mxd.trainer.errors import is_out_of_memory
from mxd.trainer.utils.distributed import with_gradient
from mxd.trainer.utils.files import first_line

SCORES_AT_A_TIME = 1 << 22
"""Number of scores in a block: 16 MB in float32."""
MIN_TOKENS_AT_A_TIME = 64
"""Smallest number of tokens in a block of scores. Each block reads the weights of all experts."""
PAIRS_AT_A_TIME = 1 << 11
"""Number of table rows that are gathered at once: 6 MB for 768 float32 values each."""


def tokens_at_a_time(num_experts: int) -> int:
    """Number of tokens whose scores are in memory at once."""
    return max(MIN_TOKENS_AT_A_TIME, SCORES_AT_A_TIME // num_experts)


def largest_scores(x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and expert ids of the K largest of x G^T + b for each token: two tensors [T, K], largest first. Under
    autocast the scores have its dtype, so no product has an ``out`` argument: autocast ignores those."""
    tokens = tokens_at_a_time(len(weight_NI))
    # Allocated first: a result above the freed scores of its block would keep the heap from using them again.
    values_TK = x_TI.new_empty(len(x_TI), k)
    ids_TK = x_TI.new_empty(len(x_TI), k, dtype=torch.int64)
    for first in range(0, len(x_TI), tokens):
        block = slice(first, first + tokens)
        values_TK[block], ids_TK[block] = torch.addmm(bias_N, x_TI[block], weight_NI.T).topk(k, dim=1)
    return values_TK, ids_TK


def mix_rows(weights_TK: Tensor, indices_TK: Tensor, table_NW: Tensor) -> Tensor:
    """Weighted sum of the rows of each token's experts, [T, W]."""
    return F.embedding_bag(indices_TK, table_NW, mode="sum", per_sample_weights=weights_TK)


def row_dots(left_TW: Tensor, table_NW: Tensor, indices_TK: Tensor) -> Tensor:
    """Dot product of each token's row with the table row of each of its experts, [T, K]."""
    k = indices_TK.shape[1]
    tokens = max(1, PAIRS_AT_A_TIME // max(k, 1))
    width = table_NW.shape[1]
    buffer = table_NW.new_empty(min(tokens, len(left_TW)) * k, width)
    dots_TK = left_TW.new_empty(indices_TK.shape)
    for first in range(0, len(left_TW), tokens):
        rows_BW, ids_BK = left_TW[first : first + tokens], indices_TK[first : first + tokens]
        gathered = torch.index_select(table_NW, 0, ids_BK.reshape(-1), out=buffer[: ids_BK.numel()])
        products = torch.bmm(gathered.view(len(rows_BW), k, width), rows_BW.unsqueeze(2))
        dots_TK[first : first + tokens] = products.squeeze(2)
    return dots_TK


class PairsByExpert(NamedTuple):
    """The pairs (token, expert) of a batch, sorted by expert and then by token."""

    order_P: Tensor
    """Place t * K + k of each pair."""
    tokens_P: Tensor
    offsets_N1: Tensor
    """First pair of each expert, and the number of pairs, [N + 1]."""


def pairs_by_expert(indices_TK: Tensor, num_experts: int) -> PairsByExpert:
    """Sort the pairs of a batch by expert. Keys are int32, which halves the passes of a radix sort."""
    sorted_P, order_P = indices_TK.reshape(-1).int().sort(stable=True)
    dtype = torch.int32 if len(order_P) < 1 << 31 else torch.int64
    # bincount would synchronise with the GPU to determine its size.
    bounds_N1 = torch.arange(num_experts + 1, device=sorted_P.device, dtype=torch.int32)
    offsets_N1 = torch.searchsorted(sorted_P, bounds_N1, out_int32=dtype == torch.int32)
    return PairsByExpert(order_P, (order_P // indices_TK.shape[1]).to(dtype), offsets_N1)


def sum_by_expert(rows_TW: Tensor, weights_TK: Tensor, pairs: PairsByExpert) -> tuple[Tensor, Tensor]:
    """Weighted sum of the rows of each expert's tokens, [N, W], and the sum of the weights alone, [N]. Each bag of
    ``embedding_bag`` is one expert: no atomics, deterministic."""
    weights_P = weights_TK.reshape(-1)[pairs.order_P]
    sums_NW, totals_N1 = (
        F.embedding_bag(
            pairs.tokens_P, values, pairs.offsets_N1, mode="sum", per_sample_weights=weights_P, include_last_offset=True
        )
        for values in (rows_TW, rows_TW.new_ones(len(rows_TW), 1))
    )
    return sums_NW, totals_N1.squeeze(1)


PLAIN = sys.modules[__name__]


def ops_for(tensor: Tensor) -> ModuleType:
    """The fastest implementation for a tensor. The kernels sum in float32, so float64 is left to PyTorch."""
    return PLAIN if tensor.dtype == torch.float64 else ops_on(tensor.device)


def ops_on(device: torch.device) -> ModuleType:
    return compiled_ops(device) if device.type == "cuda" else PLAIN


@cache
def compiled_ops(device: torch.device) -> ModuleType:
    """The Triton kernels if one of them runs on a device, else the plain operations, with a warning. Triton builds the
    launcher of its kernels with the machine's C compiler and Python's headers."""
    if find_spec("triton") is None:  # on Windows and macOS
        return PLAIN
    from triton.errors import TritonError

    from mxd.trainer.layers import triton_ops

    one_11 = torch.ones(1, 1, device=device)
    try:
        triton_ops.mix_rows(one_11, torch.zeros(1, 1, dtype=torch.int64, device=device), one_11)
    except (TritonError, ImportError, OSError, RuntimeError, CalledProcessError) as error:
        if is_out_of_memory(error):
            raise
        warnings.warn(
            f"The GPU kernels cannot be compiled, so slower operations of PyTorch are used: {first_line(error)}. "
            "Install a C compiler (gcc or clang) and Python's headers, and check with 'mxd doctor'.",
            stacklevel=2,
        )
        return PLAIN
    return triton_ops


SharedPairs = dict[int, PairsByExpert]
"""The pairs of one tensor of expert ids, by the number of experts, sorted when the first backward pass needs them. Gate
and mixing find it on the tensor of ids, so that the gradients of gate, biases and table need one sort."""


def _pairs_of(shared: SharedPairs, indices_TK: Tensor, num_experts: int) -> PairsByExpert:
    if num_experts not in shared:
        shared[num_experts] = pairs_by_expert(indices_TK, num_experts)
    return shared[num_experts]


_SHARED = "shared_pairs"
"""Attribute of a tensor of expert ids."""


class _Mix(torch.autograd.Function):
    """sum_k a_tk C[i_tk]: the mixing C^T a."""

    @staticmethod
    def forward(ctx: Any, activations_TK: Tensor, indices_TK: Tensor, table_NO: Tensor, shared: SharedPairs) -> Tensor:
        ctx.shared = shared
        ctx.save_for_backward(activations_TK, indices_TK, table_NO)
        ctx.save_for_forward(activations_TK, indices_TK, table_NO)
        mixed_TO: Tensor = ops_for(table_NO).mix_rows(activations_TK, indices_TK, table_NO)
        return mixed_TO

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_TO: Tensor) -> tuple[Tensor | None, ...]:
        activations_TK, indices_TK, table_NO = ctx.saved_tensors
        ops = ops_for(table_NO)
        gradient_TO = gradient_TO.contiguous()
        to_activations = to_table = None
        if ctx.needs_input_grad[0]:
            to_activations = ops.row_dots(gradient_TO, table_NO, indices_TK)
        if ctx.needs_input_grad[2]:
            to_table, _ = ops.sum_by_expert(
                gradient_TO, activations_TK, _pairs_of(ctx.shared, indices_TK, len(table_NO))
            )
        return to_activations, None, to_table, None

    @staticmethod
    def jvp(ctx: Any, tangent_TK: Tensor, _indices: None, _table: None, _shared: None) -> Tensor:
        """Derivative along a tangent of the gate activations; the weights have none."""
        _, indices_TK, table_NO = ctx.saved_tensors
        mixed_TO: Tensor = ops_for(table_NO).mix_rows(tangent_TK, indices_TK, table_NO)
        return mixed_TO


class _Gate(torch.autograd.Function):
    """The K largest of relu(x G^T + b), with their expert ids."""

    @staticmethod
    def forward(
        ctx: Any, x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, k: int, shared: SharedPairs
    ) -> tuple[Tensor, Tensor]:
        ctx.shared = shared
        # ReLU keeps the order, so it is applied only to the K largest scores.
        activations_TK, indices_TK = ops_for(x_TI).largest_scores(x_TI, weight_NI, bias_N, k)
        activations_TK = activations_TK.relu_().to(x_TI.dtype)
        ctx.save_for_backward(x_TI, weight_NI, activations_TK, indices_TK)
        ctx.save_for_forward(x_TI, weight_NI, activations_TK, indices_TK)
        ctx.mark_non_differentiable(indices_TK)
        return activations_TK, indices_TK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_TK: Tensor, _indices: Tensor) -> tuple[Tensor | None, ...]:
        x_TI, weight_NI, activations_TK, indices_TK = ctx.saved_tensors
        ops = ops_for(x_TI)
        scores_TK = torch.where(activations_TK > 0, gradient_TK, 0.0)
        to_x = to_weight = to_bias = None
        if ctx.needs_input_grad[0]:
            to_x = ops.mix_rows(scores_TK, indices_TK, weight_NI)
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            pairs = _pairs_of(ctx.shared, indices_TK, len(weight_NI))
            to_weight, to_bias = ops.sum_by_expert(x_TI, scores_TK, pairs)
        return to_x, to_weight, to_bias, None, None

    @staticmethod
    def jvp(ctx: Any, tangent_TI: Tensor, _weight: None, _bias: None, _k: None, _shared: None) -> tuple[Tensor, None]:
        """Derivative along a tangent of the input, for the selected experts; the weights have none."""
        _, weight_NI, activations_TK, indices_TK = ctx.saved_tensors
        changes_TK = ops_for(tangent_TI).row_dots(tangent_TI.contiguous(), weight_NI, indices_TK)
        return torch.where(activations_TK > 0, changes_TK, 0.0), None


def is_transformed() -> bool:
    """True inside transforms of ``torch.func``, such as ``jacrev`` and ``vmap``, which know plain operations only."""
    return bool(_are_functorch_transforms_active())


def mix(activations_TK: Tensor, indices_TK: Tensor, table_NO: Tensor) -> Tensor:
    """Sum the rows of ``table_NO`` weighted by gate activation: ``sum_k a_tk table[i_tk]``, [T, O]."""
    if is_transformed():
        return (activations_TK.unsqueeze(-1) * table_NO[indices_TK]).sum(dim=-2)
    shared = vars(indices_TK).setdefault(_SHARED, {})
    mixed: Tensor = _Mix.apply(activations_TK, indices_TK, table_NO, shared)  # type: ignore[no-untyped-call]
    return mixed


def gate(x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Gate activations and ids of the K experts with the largest scores: two tensors [T, K], largest first. A gate
    activation of 0 means that fewer than K scores were positive; that expert is inactive."""
    if is_transformed():
        scores_TK, indices_TK = F.linear(x_TI, weight_NI, bias_N).topk(k)
        return scores_TK.relu(), indices_TK
    shared: SharedPairs = {}
    activations_TK, indices_TK = _Gate.apply(x_TI, weight_NI, bias_N, k, shared)  # type: ignore[no-untyped-call]
    vars(indices_TK)[_SHARED] = shared
    return activations_TK, indices_TK


@dataclass(frozen=True)
class Shards:
    """Slice of the experts that this process holds. All processes have the same number of tokens.

    All tokens are gathered on every process, which scores them against its own experts and returns its K best. The
    process of a token selects the K best of all candidates, and the mixed rows come back as a sum.

    Communication per token with W processes: its row goes to W - 1 others, and each of them returns K candidates with
    their ids. Then K gate activations with their ids go to each, and each returns a mixed row of O values. The backward
    pass sends the same without ids. Scores of all tokens against all experts never leave the process that computed
    them.
    """

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
    """``gate`` of the whole layer for this process's tokens, forward and backward; expert ids are global."""
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
    """``mix`` of the whole layer for this process's tokens, forward and backward; expert ids are global."""
    activations_TK = with_gradient(activations_tK, shards.all_gather, shards.reduce_scatter)
    indices_TK, own = shards.all_gather(indices_tK), shards.rows(shards.rank)
    is_local_TK = (indices_TK >= own.start) & (indices_TK < own.stop)
    local_TK = torch.where(is_local_TK, indices_TK - own.start, 0)
    partial_TO = mix(torch.where(is_local_TK, activations_TK, 0.0), local_TK, table_nO)
    return with_gradient(partial_TO, shards.reduce_scatter, shards.all_gather)
