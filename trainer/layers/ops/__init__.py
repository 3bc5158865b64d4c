"""The two sparse operations of a layer, with hand-written backward passes.

Only K of N experts are active on a token. Scores are the only tensor of size T x N, and they are computed block by
block. The backward passes sort the (token, expert) pairs by expert, once for all of them, then sum the rows of each
expert. So they need no atomics and no gradient of size T x N, and the result is deterministic. A score that ReLU set to
zero gets zero gradient.

The implementation depends on the device: ``triton_ops`` on a CUDA or ROCm GPU on which they can be compiled,
``torch_ops`` elsewhere.

Shapes: T tokens, I input width, O output width, N experts, K active experts.
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib.util import find_spec
from subprocess import CalledProcessError
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from mxd.trainer.errors import is_out_of_memory
from mxd.trainer.layers.ops import torch_ops
from mxd.trainer.layers.ops.torch_ops import PairsByExpert, pairs_by_expert
from mxd.trainer.utils.hub import first_line


def ops_for(tensor: Tensor) -> ModuleType:
    """The fastest implementation for a tensor. The kernels sum in float32, so float64 is left to PyTorch."""
    return torch_ops if tensor.dtype == torch.float64 else ops_on(tensor.device)


def ops_on(device: torch.device) -> ModuleType:
    """The fastest implementation on a device."""
    return compiled_ops(device) if device.type == "cuda" else torch_ops


@cache
def compiled_ops(device: torch.device) -> ModuleType:
    """The Triton kernels if one of them runs on a device, else PyTorch's operations, with a warning.

    Triton builds the launcher of its kernels with the machine's C compiler and Python's headers.
    """
    if find_spec("triton") is None:  # on Windows and macOS
        return torch_ops
    from triton.errors import TritonError

    from mxd.trainer.layers.ops import triton_ops

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
        return torch_ops
    return triton_ops


class _SharedPairs:
    """The pairs of one tensor of expert ids, sorted when the first backward pass needs them.

    Gate and mixing find it on the tensor of ids, so that the gradients of gate, biases and table need one sort.
    """

    def __init__(self) -> None:
        self._pairs: PairsByExpert | None = None

    def of(self, indices_TK: Tensor, num_experts: int) -> PairsByExpert:
        """The pairs of these ids, of ``num_experts`` experts."""
        if self._pairs is None or len(self._pairs.offsets_N1) != num_experts + 1:
            self._pairs = pairs_by_expert(indices_TK, num_experts)
        return self._pairs


_SHARED = "shared_pairs"
"""Attribute of a tensor of expert ids."""


class _Mix(torch.autograd.Function):
    """sum_k a_tk C[i_tk]: the mixing C^T a."""

    @staticmethod
    def forward(
        ctx: Any, coefficients_TK: Tensor, indices_TK: Tensor, table_NO: Tensor, shared: _SharedPairs
    ) -> Tensor:
        ctx.shared = shared
        ctx.save_for_backward(coefficients_TK, indices_TK, table_NO)
        ctx.save_for_forward(coefficients_TK, indices_TK, table_NO)
        mixed_TO: Tensor = ops_for(table_NO).mix_rows(coefficients_TK, indices_TK, table_NO)
        return mixed_TO

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_TO: Tensor) -> tuple[Tensor | None, ...]:
        coefficients_TK, indices_TK, table_NO = ctx.saved_tensors
        ops = ops_for(table_NO)
        gradient_TO = gradient_TO.contiguous()
        to_coefficients = to_table = None
        if ctx.needs_input_grad[0]:
            to_coefficients = ops.row_dots(gradient_TO, table_NO, indices_TK)
        if ctx.needs_input_grad[2]:
            to_table, _ = ops.sum_by_expert(gradient_TO, coefficients_TK, ctx.shared.of(indices_TK, len(table_NO)))
        return to_coefficients, None, to_table, None

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
        ctx: Any, x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, k: int, shared: _SharedPairs
    ) -> tuple[Tensor, Tensor]:
        ctx.shared = shared
        # ReLU keeps the order, so it is applied only to the K largest scores.
        coefficients_TK, indices_TK = ops_for(x_TI).largest_scores(x_TI, weight_NI, bias_N, k)
        coefficients_TK = coefficients_TK.relu_().to(x_TI.dtype)
        ctx.save_for_backward(x_TI, weight_NI, coefficients_TK, indices_TK)
        ctx.save_for_forward(x_TI, weight_NI, coefficients_TK, indices_TK)
        ctx.mark_non_differentiable(indices_TK)
        return coefficients_TK, indices_TK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_TK: Tensor, _indices: Tensor) -> tuple[Tensor | None, ...]:
        x_TI, weight_NI, coefficients_TK, indices_TK = ctx.saved_tensors
        ops = ops_for(x_TI)
        scores_TK = torch.where(coefficients_TK > 0, gradient_TK, 0.0)
        to_x = to_weight = to_bias = None
        if ctx.needs_input_grad[0]:
            to_x = ops.mix_rows(scores_TK, indices_TK, weight_NI)
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            pairs = ctx.shared.of(indices_TK, len(weight_NI))
            to_weight, to_bias = ops.sum_by_expert(x_TI, scores_TK, pairs)
        return to_x, to_weight, to_bias, None, None

    @staticmethod
    def jvp(ctx: Any, tangent_TI: Tensor, _weight: None, _bias: None, _k: None, _shared: None) -> tuple[Tensor, None]:
        """Derivative along a tangent of the input, for the selected experts; the weights have none."""
        _, weight_NI, coefficients_TK, indices_TK = ctx.saved_tensors
        changes_TK = ops_for(tangent_TI).row_dots(tangent_TI.contiguous(), weight_NI, indices_TK)
        return torch.where(coefficients_TK > 0, changes_TK, 0.0), None


def is_transformed() -> bool:
    """True inside transforms of ``torch.func``, such as ``jacrev`` and ``vmap``, which know plain operations only."""
    return bool(_are_functorch_transforms_active())


def mix(coefficients_TK: Tensor, indices_TK: Tensor, table_NO: Tensor) -> Tensor:
    """Sum the rows of ``table_NO`` weighted by gate activation: ``sum_k a_tk table[i_tk]``, [T, O]."""
    if is_transformed():
        return (coefficients_TK.unsqueeze(-1) * table_NO[indices_TK]).sum(dim=-2)
    shared = vars(indices_TK).setdefault(_SHARED, _SharedPairs())
    mixed: Tensor = _Mix.apply(coefficients_TK, indices_TK, table_NO, shared)  # type: ignore[no-untyped-call]
    return mixed


def gate(x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Gate activations and ids of the K experts with the largest scores: two tensors [T, K], largest first.

    A gate activation of 0 means that fewer than K scores were positive; that expert is inactive.
    """
    if is_transformed():
        scores_TK, indices_TK = F.linear(x_TI, weight_NI, bias_N).topk(k)
        return scores_TK.relu(), indices_TK
    shared = _SharedPairs()
    coefficients_TK, indices_TK = _Gate.apply(x_TI, weight_NI, bias_N, k, shared)  # type: ignore[no-untyped-call]
    vars(indices_TK)[_SHARED] = shared
    return coefficients_TK, indices_TK
