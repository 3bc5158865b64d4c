"""Linearisation of a transformer between its MLPs: attention patterns and normalisation scales become constants.

Inside ``LinearizedOps``, and while gradients are recorded:

- attention(q, k, v) = pattern * v. The pattern is a constant.
- norm(x) = (x - mean) * scale * w + b. The scale is a constant, the mean is not.
- cap * tanh(x / cap) = x * ratio. The ratio of the value to x is a constant.

Values equal the language model's up to rounding, and gradients between any two tensors are exact linear coefficients
(Ameisen et al., Circuit Tracing, 2025, "Local replacement model"). The mode overrides PyTorch functions rather than
modules, so it is independent of the architecture. ``tracing`` detects functions that it does not cover, because the
contributions then do not sum to the logit.

Each bias is multiplied by one shared constant, ``one``. Its gradient is the contribution of all biases to a target.

Shapes: B rows, H heads, J heads of keys and values, T tokens, D width of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from mxd.trainer.analysis.circuits.attention import AttentionCall, frozen_attention


class AttentionOutput(NamedTuple):
    """A recorded call of attention. Gradients flow through its query, key, value and output."""

    call: AttentionCall
    value_BJTD: Tensor
    output_BHTD: Tensor


class LinearizedOps(TorchFunctionMode):
    """Context manager that linearises PyTorch functions while gradients are recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.one = torch.ones((), requires_grad=True)
        """Factor of all biases."""
        self.attention: list[AttentionOutput] = []
        """Calls of attention, in the order of the layers."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        linearized = _LINEARIZED.get(func) if torch.is_grad_enabled() else None
        if linearized is None:
            return func(*args, **(kwargs or {}))
        return linearized(self, func, *args, **(kwargs or {}))

    def add_bias(self, values: Tensor, bias: Tensor | None) -> Tensor:
        """Add a bias, which counts as a constant."""
        return values if bias is None else values + bias.detach() * self.one.to(bias)


def _attention(
    ops: LinearizedOps,
    _: Any,
    query_BHTD: Tensor,
    key_BJTD: Tensor,
    value_BJTD: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,  # noqa: ARG001 - the model is in evaluation mode
    is_causal: bool = False,
    scale: float | None = None,
    **_gqa: bool,
) -> Tensor:
    scale = query_BHTD.shape[-1] ** -0.5 if scale is None else scale
    call = AttentionCall(query_BHTD, key_BJTD, attn_mask, is_causal, scale)
    output_BHTD = frozen_attention(value_BJTD, call)
    ops.attention.append(AttentionOutput(call, value_BJTD, output_BHTD))
    return output_BHTD


def _constant(_: LinearizedOps, func: Any, *args: Any, **kwargs: Any) -> Any:
    return func(*args, **kwargs).detach()


def _linear(ops: LinearizedOps, func: Any, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return ops.add_bias(func(input, weight), bias)


def _addmm(ops: LinearizedOps, func: Any, input: Tensor, mat1: Tensor, mat2: Tensor, **kwargs: Any) -> Tensor:
    """Linearise GPT-2's linear maps: a bias plus a product."""
    if input.requires_grad or kwargs:
        added: Tensor = func(input, mat1, mat2, **kwargs)
        return added
    return ops.add_bias(mat1 @ mat2, input)


def _layer_norm(
    ops: LinearizedOps,
    _: Any,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    axes = tuple(range(-len(normalized_shape), 0))
    centred = input - input.mean(axes, keepdim=True)
    scale = (centred.detach().square().mean(axes, keepdim=True) + eps).rsqrt()
    scaled = centred * scale
    return ops.add_bias(scaled if weight is None else scaled * weight, bias)


def _rms_norm(
    _: LinearizedOps,
    __: Any,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    axes = tuple(range(-len(normalized_shape), 0))
    epsilon = torch.finfo(input.dtype).eps if eps is None else eps
    scaled = input * (input.detach().square().mean(axes, keepdim=True) + epsilon).rsqrt()
    return scaled if weight is None else scaled * weight


def _tanh(_: LinearizedOps, func: Any, input: Tensor) -> Tensor:
    values = input.detach()
    ratio = torch.where(values == 0, torch.ones_like(values), func(values) / values)
    return input * ratio


_LINEARIZED: Mapping[Any, Callable[..., Any]] = {
    F.scaled_dot_product_attention: _attention,
    F.softmax: _constant,
    torch.softmax: _constant,
    Tensor.softmax: _constant,
    torch.rsqrt: _constant,
    Tensor.rsqrt: _constant,
    F.linear: _linear,
    torch.addmm: _addmm,
    F.layer_norm: _layer_norm,
    F.rms_norm: _rms_norm,
    torch.tanh: _tanh,
    Tensor.tanh: _tanh,
}
