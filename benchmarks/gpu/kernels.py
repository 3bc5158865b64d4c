"""The Triton kernels against the reference in float64, on fresh random data, for every shape of the paper.

Shapes: T tokens, I input width, O output width, N experts, K active experts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.gpu.clock import median_seconds
from benchmarks.gpu.sections import Point, Setting
from benchmarks.gpu.shapes import PaperShape, shapes
from mxd.trainer.layers import ops

MOST_ERROR = 1e-5
"""Largest relative error of float32 sums that counts as correct."""
CHECKED_TOKENS = 512
"""Tokens of the float64 reference of the scores, which is a [T, N] matrix."""


@dataclass(frozen=True)
class _Inputs:
    """Random inputs; half of the rows use expert 0, as of an expert that is active on nearly every token."""

    x_TI: Tensor
    weight_NI: Tensor
    bias_N: Tensor
    activations_TK: Tensor
    indices_TK: Tensor

    @classmethod
    def random(cls, shape: PaperShape, device: str) -> _Inputs:
        generator = torch.Generator(device).manual_seed(int(torch.randint(2**31, ())))

        def normal(*sizes: int) -> Tensor:
            return torch.randn(*sizes, generator=generator, device=device)

        scores_TN = torch.rand(shape.tokens, shape.num_experts, generator=generator, device=device)
        indices_TK = scores_TN.topk(shape.k, dim=1).indices
        indices_TK[::2, 0] = 0
        return cls(
            normal(shape.tokens, shape.width),
            normal(shape.num_experts, shape.width) / shape.width**0.5,
            normal(shape.num_experts),
            normal(shape.tokens, shape.k),
            indices_TK,
        )


Result = Tensor | tuple[Tensor, ...]


def kernel_points(setting: Setting) -> Iterator[Point]:
    """Error, time and bandwidth of each kernel at each shape."""
    from mxd.trainer.layers import triton_ops

    for shape in shapes(setting.tiny):
        inputs = _Inputs.random(shape, setting.device)
        for name, work, reference, moved in _operations(triton_ops, inputs):
            with poisoned_memory():
                error = relative_error(work(), reference())
            seconds = median_seconds(work, setting.device)
            yield {
                "shape": shape.name,
                "kernel": name,
                "relative_error": error,
                "is_correct": error <= MOST_ERROR,
                "milliseconds": 1e3 * seconds,
                "gigabytes_per_second": moved / seconds / 1e9,
            }
        yield _selection(triton_ops, inputs, shape, setting.device)


def _operations(kernels: object, it: _Inputs) -> Iterator[tuple[str, Callable[[], Tensor], Callable[[], Tensor], int]]:
    """Name, kernel, float64 reference, and fewest bytes that the kernel must move, of each operation."""
    experts, (tokens, k), width = len(it.weight_NI), it.indices_TK.shape, it.x_TI.shape[1]
    rows, pairs_bytes = 4 * tokens * width, 4 * tokens * k
    gathered = 4 * tokens * k * width
    table = it.weight_NI
    yield (
        "mix_rows",
        lambda: kernels.mix_rows(it.activations_TK, it.indices_TK, table),  # type: ignore[attr-defined]
        lambda: ops.mix_rows(it.activations_TK.double(), it.indices_TK, table.double()),
        gathered + rows + 3 * pairs_bytes,
    )
    yield (
        "row_dots",
        lambda: kernels.row_dots(it.x_TI, table, it.indices_TK),  # type: ignore[attr-defined]
        lambda: ops.row_dots(it.x_TI.double(), table.double(), it.indices_TK),
        gathered + rows + 3 * pairs_bytes,
    )
    pairs = ops.pairs_by_expert(it.indices_TK, experts)
    yield (
        "sum_by_expert",
        lambda: kernels.sum_by_expert(it.x_TI, it.activations_TK, pairs)[0],  # type: ignore[attr-defined]
        lambda: ops.sum_by_expert(it.x_TI.double(), it.activations_TK.double(), pairs)[0],
        gathered + 4 * experts * width + 3 * pairs_bytes,
    )


def _selection(kernels: object, it: _Inputs, shape: PaperShape, device: str) -> Point:
    """Scores and experts of the top-k against float64; with bfloat16 products, only near ties may differ."""

    def choose(x_TI: Tensor) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = kernels.largest_scores(  # type: ignore[attr-defined]
            x_TI, it.weight_NI, it.bias_N, shape.k
        )
        return found

    head_TI = it.x_TI[:CHECKED_TOKENS]
    scores_TN = torch.addmm(it.bias_N.double(), head_TI.double(), it.weight_NI.double().T)
    best = scores_TN.topk(shape.k, dim=1)
    values_TK, indices_TK = choose(head_TI)
    with torch.autocast(device.partition(":")[0], torch.bfloat16):
        mixed_values_TK, mixed_indices_TK = choose(head_TI)
        mixed_seconds = median_seconds(lambda: choose(it.x_TI), device)
    return {
        "shape": shape.name,
        "kernel": "largest_scores",
        "relative_error": (error := relative_error(values_TK, best.values)),
        "is_correct": error <= MOST_ERROR,
        "same_experts": _shared(indices_TK, best.indices),
        "milliseconds": 1e3 * median_seconds(lambda: choose(it.x_TI), device),
        "bfloat16_relative_error": relative_error(mixed_values_TK, scores_TN.gather(1, mixed_indices_TK)),
        "bfloat16_same_experts": _shared(mixed_indices_TK, best.indices),
        "bfloat16_milliseconds": 1e3 * mixed_seconds,
    }


def _shared(left_TK: Tensor, right_TK: Tensor) -> float:
    """Share of the selected experts that are the same, in any order."""
    return float((left_TK.unsqueeze(2) == right_TK.unsqueeze(1)).any(dim=2).double().mean())


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """‖actual - expected‖ / ‖expected‖; infinity if a value is not finite, as where a kernel wrote nothing."""
    error = float((actual.double() - expected.double()).norm() / expected.double().norm())
    return error if bool(torch.isfinite(actual).all()) else float("inf")


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Fill new tensors with NaN inside the context, so that elements which a kernel does not write are found."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    before = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = before  # type: ignore[attr-defined]
        torch.use_deterministic_algorithms(False)
