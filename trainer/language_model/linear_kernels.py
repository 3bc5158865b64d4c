"""Matrix products with constant weights on a CPU: for each number of rows, the kernel that was faster when timed.

A generation step multiplies few rows by large weights, and reading the weights takes most of its time. With weights in
oneDNN's layout, its kernel reads them once for up to 16 rows, in about half the time of PyTorch's. It is also about
10 % faster for the hundreds of rows of a routed text. On other processors it may be slower. So both are timed once per
language model and number of rows, on a sample of its own weights.

Shapes: R rows, I input width, O output width.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F

from mxd.trainer.language_model.mlp_hooks import replace_forward

LAYOUT_ROWS = 4
"""Number of rows that the layout of packed weights is chosen for. It serves other numbers equally well."""
FEW_ROWS, MANY_ROWS = 32, 1024
"""The product with 2 to ``FEW_ROWS`` rows takes about as long as reading the weights, so one number is timed for all.
More than ``MANY_ROWS`` use the kernel that is faster for that number."""
MIN_WEIGHTS = 1 << 16
"""Smaller matrices stay in the processor's cache, where the kernels differ little."""
PACKED_BYTES = 1 << 30
"""Most memory for packed copies of the weights of one language model."""
SAMPLE = 14
"""Number of timed modules, beside the last one, which is usually the largest. Two blocks exceed the cache."""
REPEATS = 3
WORTHWHILE = 0.95
"""A packed copy takes memory, so it has to take less than this share of the time."""


class LinearKernels:
    """Faster ``forward`` functions for the linear modules of a language model. Not thread-safe."""

    def __init__(self, module: nn.Module) -> None:
        self.bytes_left = PACKED_BYTES
        linears = [each for each in module.modules() if type(each) is nn.Linear and is_suitable(each.weight)]
        self._linears = [_Linear(linear, self) for linear in linears]
        self._choices: dict[tuple[int, int], bool] = {}

    def apply(self, stack: ExitStack) -> None:
        """Use the kernels until ``stack`` is closed."""
        for linear in self._linears:
            replace_forward(linear.module, linear.forward, stack)

    def is_packing_faster(self, rows: int) -> bool:
        """True if packed weights were faster for about so many rows with the present number of threads."""
        key = _timed_rows(rows), torch.get_num_threads()
        if key not in self._choices:
            self._choices[key] = _is_packing_faster(
                [linear.module.weight for linear in [*self._linears[:-1][:SAMPLE], self._linears[-1]]], key[0]
            )
        return self._choices[key]


class _Linear:
    """A linear module with a packed copy of its weights, which is made when it is first faster."""

    def __init__(self, module: nn.Linear, kernels: LinearKernels) -> None:
        self.module = module
        self._kernels = kernels
        self._packed: Tensor | None = None
        self._source: tuple[int, int] = (0, 0)

    def forward(self, x: Tensor) -> Tensor:
        module = self.module
        rows = x.numel() // x.shape[-1]
        # oneDNN's product has no derivative, and would drop a forward one without a word.
        if rows and forward_ad.unpack_dual(x).tangent is None and self._kernels.is_packing_faster(rows):
            packed = self._current()
            if packed is not None:
                return packed_product(x, packed, module.bias)
        return F.linear(x, module.weight, module.bias)

    def _current(self) -> Tensor | None:
        """The packed copy of the present weights, or None if there is no memory for it."""
        weight = self.module.weight
        source = weight.data_ptr(), weight._version
        if self._packed is not None and self._source == source:
            return self._packed
        if self._packed is None:
            if self._kernels.bytes_left < weight.nbytes:
                return None
            self._kernels.bytes_left -= weight.nbytes
        self._packed, self._source = pack(weight), source
        return self._packed


def _timed_rows(rows: int) -> int:
    """Number of rows that is timed for ``rows``."""
    if 1 < rows <= FEW_ROWS:
        return LAYOUT_ROWS
    return min(MANY_ROWS, 1 << (rows - 1).bit_length())


def is_suitable(weight: Tensor) -> bool:
    """True for large float32 weights on a CPU for which PyTorch has oneDNN."""
    large = weight.numel() >= MIN_WEIGHTS and not weight.is_meta
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


@torch.inference_mode()
def _is_packing_faster(weights: Sequence[Tensor], rows: int) -> bool:
    """Time both kernels on the weights [O, I], one after another as in a forward pass."""
    inputs = [torch.ones(rows, weight.shape[1]) for weight in weights]
    packed = [pack(weight) for weight in weights]
    kernels: list[Callable[[], object]] = [
        lambda: [F.linear(x_RI, weight) for x_RI, weight in zip(inputs, weights, strict=True)],
        lambda: [packed_product(x_RI, weight, None) for x_RI, weight in zip(inputs, packed, strict=True)],
    ]
    rounds = [[_seconds(kernel) for kernel in kernels] for _ in range(REPEATS)]
    plain, with_packing = (min(seconds) for seconds in zip(*rounds, strict=True))
    return bool(with_packing < WORTHWHILE * plain)


def _seconds(kernel: Callable[[], object]) -> float:
    started = time.thread_time()  # not wall time, in which another program's work would count
    kernel()
    return time.thread_time() - started
