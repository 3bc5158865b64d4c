"""Matrix products with constant weights on a CPU: for each shape, the kernel that was fastest when both were timed.

A generation step multiplies few rows by large weights, and reading the weights takes most of its time. oneDNN's kernel
with weights in its own layout reads them once for up to 16 rows, and faster than PyTorch's: in about half the time. It
is also about 10 % faster for the hundreds of rows of a routed text. On other processors it may be slower, so both are
timed once per process, shape and number of rows.

Shapes: R rows, I input width, O output width.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mxd.trainer.language_model.mlp_hooks import replace_forward

MAX_TIMED_ROWS = 1024
"""More rows use the kernel that is faster for this number."""
LAYOUT_ROWS = 4
"""Number of rows that the layout of packed weights is chosen for. It serves other numbers equally well."""
MIN_WEIGHTS = 1 << 16
"""Smaller matrices stay in the processor's cache, where the kernels differ little."""
PACKED_BYTES = 1 << 30
"""Most memory for packed copies of the weights of one language model."""
REPEATS = 3
CACHE_BYTES = 32 << 20
"""Bytes of weights that do not stay in the processor's cache, as those of a language model do not."""
FEW_ROWS = 32
"""Largest number of rows whose product takes about as long as reading the weights."""
WORTHWHILE = 0.95
"""A packed copy takes memory, so it has to take less than this share of the time."""


class LinearKernels:
    """Faster ``forward`` functions for the linear modules of a language model. Not thread-safe."""

    def __init__(self, module: nn.Module) -> None:
        self.bytes_left = PACKED_BYTES
        linears = [each for each in module.modules() if type(each) is nn.Linear and is_suitable(each.weight)]
        self._linears = [_Linear(linear, self) for linear in linears]

    def apply(self, stack: ExitStack) -> None:
        """Use the kernels until ``stack`` is closed."""
        for linear in self._linears:
            replace_forward(linear.module, linear.forward, stack)


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
        timed = min(MAX_TIMED_ROWS, 1 << (rows - 1).bit_length())
        if rows and is_packing_faster(*module.weight.shape, timed, torch.get_num_threads()):
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


@cache
@torch.inference_mode()
def is_packing_faster(outputs: int, inputs: int, rows: int, threads: int) -> bool:  # noqa: ARG001
    """Time both kernels on random values; ``threads`` is the present number, which the answer depends on."""
    x_RI, weight_OI = torch.randn(rows, inputs), torch.randn(outputs, inputs)
    copies = -(-CACHE_BYTES // weight_OI.nbytes) if rows <= FEW_ROWS else 1
    weights = [weight_OI.clone() for _ in range(copies)]
    packed = [pack(weight) for weight in weights]
    kernels: list[Callable[[], object]] = [
        lambda: [F.linear(x_RI, weight) for weight in weights],
        lambda: [packed_product(x_RI, weight, None) for weight in packed],
    ]
    plain, with_packing = (
        min(seconds) for seconds in zip(*(map(_seconds, kernels) for _ in range(REPEATS)), strict=True)
    )
    return bool(with_packing < WORTHWHILE * plain)


def _seconds(kernel: Callable[[], object]) -> float:
    started = time.thread_time()  # not wall time, in which another program's work would count
    kernel()
    return time.thread_time() - started
