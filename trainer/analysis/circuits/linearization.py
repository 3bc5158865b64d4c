"""Linearisation of a transformer between its MLPs: attention patterns and normalisation scales become constants.

Inside ``LinearizedOps``, and while gradients are recorded:

- attention(q, k, v) = pattern * v. The pattern is a constant.
- norm(x) = (x - mean) * scale * w + b. The scale is a constant, the mean is not.
- cap * tanh(x / cap) = x * ratio. The ratio of the value to x is a constant.

Values equal the language model's up to rounding, and gradients between any two tensors are exact linear coefficients
(Ameisen et al., Circuit Tracing, 2025, "Local replacement model"). The mode overrides PyTorch functions rather than
modules, so it is independent of the architecture. ``tracing`` detects functions that it does not cover, because the
contributions then do not sum to the logit.

Each bias is added as a separate constant tensor, so that its contribution to a target can be computed.

Shapes: B rows, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


class LinearizedOps(TorchFunctionMode):
    """Context manager that linearises PyTorch functions while gradients are recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.constants: list[Tensor] = []
        """Each added bias, expanded to the shape of its output, rows first."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        linearized = _LINEARIZED.get(func) if torch.is_grad_enabled() else None
        if linearized is None:
            return func(*args, **(kwargs or {}))
        return linearized(self, func, *args, **(kwargs or {}))

    def add_bias(self, values: Tensor, bias: Tensor | None) -> Tensor:
        """Add a bias and record it."""
        if bias is None:
            return values
        constant = bias.detach().expand(values.shape).requires_grad_()
        self.constants.append(constant)
        return values + constant


def _attention(
    _: LinearizedOps, func: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
) -> Any:
    return func(query.detach(), key.detach(), value, *args, **kwargs)


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
