"""Matrix products with constant weights on an x86 CPU, by oneDNN's kernel for packed weights.

A generation step multiplies few rows by large weights, and reading the weights takes most of its time. With weights in
oneDNN's layout, its kernel reads them once for up to 16 rows, in about half the time of PyTorch's, and it is faster for
the hundreds of rows of a routed text too. The kernels round differently. So the choice depends on the processor's
architecture and on the language model only, never on a clock or on earlier requests, and two starts of a server give
the same texts.

Shapes: R rows, I input width, O output width.
"""

from __future__ import annotations

import platform
from contextlib import ExitStack

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F

from mxd.trainer.language_model.mlp_hooks import replace_forward

LAYOUT_ROWS = 4
"""Number of rows that the layout of packed weights is chosen for. It serves other numbers equally well."""
MIN_WEIGHTS = 1 << 16
"""Smaller matrices stay in the processor's cache, where the kernels differ little."""
PACKED_BYTES = 1 << 30
"""Most memory for packed copies of the weights of one language model."""


class LinearKernels:
    """Faster ``forward`` functions for the linear modules of a language model. Not thread-safe."""

    def __init__(self, module: nn.Module) -> None:
        bytes_left = PACKED_BYTES
        self._linears: list[_Linear] = []
        for linear in module.modules():
            # In the order of the modules, so that those that have a copy do not depend on what was computed first.
            if type(linear) is nn.Linear and is_suitable(linear.weight) and linear.weight.nbytes <= bytes_left:
                bytes_left -= linear.weight.nbytes
                self._linears.append(_Linear(linear))

    def apply(self, stack: ExitStack) -> None:
        """Use the kernels until ``stack`` is closed."""
        for linear in self._linears:
            replace_forward(linear.module, linear.forward, stack)


class _Linear:
    """A linear module with a packed copy of its weights, which is made when it is first used."""

    def __init__(self, module: nn.Linear) -> None:
        self.module = module
        self._packed: Tensor | None = None
        self._source: tuple[int, int] = (0, 0)

    def forward(self, x: Tensor) -> Tensor:
        module = self.module
        # oneDNN's product has no derivative, and would drop a forward one without a word.
        if x.numel() and forward_ad.unpack_dual(x).tangent is None and is_suitable(module.weight):
            return packed_product(x, self._current(), module.bias)
        return F.linear(x, module.weight, module.bias)

    def _current(self) -> Tensor:
        """The packed copy of the present weights."""
        weight = self.module.weight
        source = weight.data_ptr(), weight._version
        if self._packed is None or self._source != source:
            self._packed, self._source = pack(weight), source
        return self._packed


def is_suitable(weight: Tensor) -> bool:
    """True for large float32 weights on an x86 CPU for which PyTorch has oneDNN."""
    large = weight.numel() >= MIN_WEIGHTS and not weight.is_meta and platform.machine().lower() in ("x86_64", "amd64")
    return (
        large and weight.dtype == torch.float32 and weight.device.type == "cpu" and torch.backends.mkldnn.is_available()
    )


def pack(weight: Tensor) -> Tensor:
    """Copy of a weight [O, I] in oneDNN's layout."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), LAYOUT_ROWS)
    return packed


def packed_product(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """``F.linear`` with a packed weight, for at least one row."""
    if x.numel() > x.shape[-1]:
        output: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
        return output
    # For a single row, oneDNN has only a kernel that is 40 times as slow.
    twice = packed_product(x.reshape(1, -1).expand(2, -1), packed, bias)
    return twice[:1].reshape(*x.shape[:-1], -1)
