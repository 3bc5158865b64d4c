"""All that a transformer does between its MLPs, made linear: attention patterns and normalisation scales are frozen.

While ``Freezing`` is on, and gradients are recorded,

    attention(q, k, v) = pattern * v            the pattern, from q and k, is a constant
    norm(x) = (x - mean) * scale * w + b        the scale is a constant, the mean is not
    cap * tanh(x / cap) = x * ratio             the ratio, of the value to x, is a constant

so the values are those of the language model to rounding, and the gradient of anything with respect to anything earlier
is an exact coefficient (Ameisen et al., Circuit Tracing, 2025, "Local replacement model"). It works on the functions of
PyTorch that architectures are made of, not on their modules, so it needs to know no architecture; what it does not
catch, ``trainer.circuits.tracing`` finds out by adding up.

Biases are constants too. Each is put in by a tensor of its own, so that what it adds to a target can be told.

Shapes: B rows, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


class Freezing(TorchFunctionMode):
    """Freezes what is computed inside ``with``, wherever gradients are recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.constants: list[Tensor] = []
        """What each bias has added, in the shape of what it was added to: rows first."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        frozen = _FROZEN.get(func) if torch.is_grad_enabled() else None
        if frozen is None:
            return func(*args, **(kwargs or {}))
        return frozen(self, func, *args, **(kwargs or {}))

    def plus(self, values: Tensor, bias: Tensor | None) -> Tensor:
        """``values`` and a bias, which is noted."""
        if bias is None:
            return values
        constant = bias.detach().expand(values.shape).requires_grad_()
        self.constants.append(constant)
        return values + constant


def _attention(_: Freezing, func: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
    return func(query.detach(), key.detach(), value, *args, **kwargs)


def _constant(_: Freezing, func: Any, *args: Any, **kwargs: Any) -> Any:
    return func(*args, **kwargs).detach()


def _linear(it: Freezing, func: Any, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return it.plus(func(input, weight), bias)


def _addmm(it: Freezing, func: Any, input: Tensor, mat1: Tensor, mat2: Tensor, **kwargs: Any) -> Tensor:
    """As GPT-2's linear maps are written: a bias, and a product."""
    if input.requires_grad or kwargs:
        added: Tensor = func(input, mat1, mat2, **kwargs)
        return added
    return it.plus(mat1 @ mat2, input)


def _layer_norm(
    it: Freezing,
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
    return it.plus(scaled if weight is None else scaled * weight, bias)


def _rms_norm(
    _: Freezing,
    __: Any,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    axes = tuple(range(-len(normalized_shape), 0))
    least = torch.finfo(input.dtype).eps if eps is None else eps
    scaled = input * (input.detach().square().mean(axes, keepdim=True) + least).rsqrt()
    return scaled if weight is None else scaled * weight


def _tanh(_: Freezing, func: Any, input: Tensor) -> Tensor:
    values = input.detach()
    ratio = torch.where(values == 0, torch.ones_like(values), func(values) / values)
    return input * ratio


_FROZEN: Mapping[Any, Callable[..., Any]] = {
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
