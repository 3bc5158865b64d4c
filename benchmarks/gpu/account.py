"""Account of a training step on a GPU: kernels, bytes and FLOPs of a real step on fake tensors. Nothing is timed.

The trainer's own step runs on tensors without values. Each operation counts as one kernel that reads its inputs and
writes its results in main memory once; caches are ignored. A kernel takes as long as its bytes, or its FLOPs if that is
longer. The rates are those of an H100 that kernels reach, not its peaks.

Shapes: T tokens, N experts, K active experts, P = T * K pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.gpu.layer_step import random_batch, shape_trainer
from benchmarks.gpu.sections import Point, Setting
from benchmarks.gpu.shapes import PaperShape, shapes
from mxd.trainer.config.training import MatmulPrecision
from mxd.trainer.layers import ops
from mxd.trainer.layers.ops import PairsByExpert, pairs_by_expert

FLOPS_PER_SECOND = {torch.float32: 60e12, torch.bfloat16: 600e12}
"""Matrix products of an H100: float32 without tensor cores, and 600 achieved of 989 TFLOP/s in bfloat16."""
BYTES_PER_SECOND = 2.7e12
"""Achieved of 3.35 TB/s."""
PRECISIONS: tuple[MatmulPrecision, ...] = ("medium", "highest")
"""The default precision on an H100, and float32."""
LAUNCH_SECONDS = 8e-6
"""Time of the CPU per kernel in PyTorch, with autograd."""
TOPK_PASSES = 5.5
"""Passes of ``topk`` over its input: a radix select, and the values."""
SORT_BITS = 8
"""Bits of a pass of a radix sort, which reads and writes the keys and their positions."""
ADAMW_BYTES = 28
"""Bytes per weight: weight, gradient and two moments are read; weight and moments are written."""
NO_KERNEL = ("aten.empty", "aten.new_empty", "aten.empty_like", "aten._unsafe_view", "aten.detach", "aten.lift_fresh")
"""Operations that only create or rename memory."""


@dataclass
class Part:
    """One line of the account."""

    kernels: int = 0
    bytes: float = 0.0
    flops: float = 0.0
    seconds: float = 0.0


@dataclass
class Account(TorchDispatchMode):
    """Counts the operations of a step, by part."""

    num_experts: int
    parts: dict[str, Part] = field(default_factory=dict)
    _inside: str | None = None

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def add(self, part: str, moved: float, flops: float = 0.0, dtype: torch.dtype = torch.float32) -> None:
        """Count one kernel."""
        line = self.parts.setdefault(self._inside or part, Part())
        line.kernels += 1
        line.bytes += moved
        line.flops += flops
        line.seconds += max(moved / BYTES_PER_SECOND, flops / FLOPS_PER_SECOND[dtype])

    @contextmanager
    def within(self, part: str) -> Iterator[None]:
        """Count all kernels inside the context to one part."""
        before, self._inside = self._inside, self._inside or part
        try:
            yield
        finally:
            self._inside = before

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        name = str(func).rpartition(".")[0]
        if func.is_view or name in NO_KERNEL or name.startswith("prim."):
            return result
        if name in ("aten.mm", "aten.addmm", "aten.bmm"):
            self._product(inputs, outputs[0])
        elif name == "aten._fused_adamw_":
            self.add("AdamW", ADAMW_BYTES * sum(weight.numel() for weight in args[0]))
        elif name == "aten.topk":
            self.add("largest scores", TOPK_PASSES * _bytes(inputs) + _bytes(outputs))
        elif name == "aten.sort":
            moved = _bytes(inputs) + 8 * inputs[0].numel()
            for _ in range(inputs[0].element_size() * 8 // SORT_BITS):
                self.add("sort", 2 * moved)
        elif name in ("aten.gather", "aten.index", "aten.index_select"):
            self.add("elementwise", 2 * _bytes(outputs) + _bytes(inputs[1:]))
        else:
            self.add("elementwise", _bytes(inputs) + _bytes([it for it in outputs if not _among(it, inputs)]))
        return result

    def _product(self, inputs: list[Tensor], output: Tensor) -> None:
        left, right = inputs[-2:]
        part = "scores" if self.num_experts in output.shape else "encoder and decoder"
        flops = 2.0 * left.numel() * right.shape[-1]
        self.add(part, _bytes(inputs) + _bytes([output]), flops, left.dtype)


def _bytes(tensors: list[Tensor]) -> int:
    """Bytes of tensors in memory; an expanded tensor is small."""
    return sum(
        min(it.numel(), it.untyped_storage().nbytes() // it.element_size()) * it.element_size() for it in tensors
    )


def _among(tensor: Tensor, others: list[Tensor]) -> bool:
    return any(tensor is other for other in others)


class _Kernels:
    """The interface of ``triton_ops`` on fake tensors: counts what its kernels read and write."""

    def __init__(self, account: Account) -> None:
        from mxd.trainer.layers import triton_ops

        self._account, self._real = account, triton_ops
        self.tokens_at_a_time = triton_ops.tokens_at_a_time

    def largest_scores(self, *args: Any) -> tuple[Tensor, Tensor]:
        """The real function with these kernels."""
        real = self._real.blocked_topk

        def blocked_topk(scores_TN: Tensor, k: int) -> tuple[Tensor, Tensor]:
            with self._account.within("largest scores"):
                return real(scores_TN, k)

        with mock.patch.multiple(self._real, row_dots=self.row_dots, blocked_topk=blocked_topk):
            return self._real.largest_scores(*args)

    def mix_rows(self, weights_TK: Tensor, indices_TK: Tensor, table_NW: Tensor) -> Tensor:
        mixed_TW = table_NW.new_empty(len(indices_TK), table_NW.shape[1])
        gathered = indices_TK.numel() * table_NW.shape[1] * table_NW.element_size()
        self._account.add("mix_rows", gathered + _bytes([weights_TK, indices_TK, mixed_TW]))
        return mixed_TW

    def row_dots(self, left_TW: Tensor, table_NW: Tensor, indices_TK: Tensor) -> Tensor:
        dots_TK = left_TW.new_empty(indices_TK.shape)
        gathered = indices_TK.numel() * table_NW.shape[1] * table_NW.element_size()
        self._account.add("row_dots", gathered + _bytes([left_TW, indices_TK, dots_TK]))
        return dots_TK

    def sum_by_expert(self, rows_TW: Tensor, weights_TK: Tensor, pairs: PairsByExpert) -> tuple[Tensor, Tensor]:
        experts = len(pairs.offsets_N1) - 1
        sums_NW, totals_N = rows_TW.new_empty(experts, rows_TW.shape[1]), rows_TW.new_empty(experts)
        weights_P = weights_TK.reshape(-1)[pairs.order_P]
        gathered = len(weights_P) * rows_TW.shape[1] * rows_TW.element_size()
        self._account.add("sum_by_expert", gathered + _bytes([weights_P, *pairs[1:], sums_NW, totals_N]))
        return sums_NW, totals_N


def step_account(shape: PaperShape, precision: MatmulPrecision) -> dict[str, Part]:
    """Parts of one step of ``LayerTrainer`` after the first."""
    with FakeTensorMode():
        trainer, batch = shape_trainer(shape, "cpu", precision), random_batch(shape, "cpu")
        account = Account(shape.num_experts)
        kernels = _Kernels(account)

        def sort(indices_TK: Tensor, num_experts: int) -> PairsByExpert:
            with account.within("sort"):
                return pairs_by_expert(indices_TK, num_experts)

        with mock.patch.multiple(ops, ops_for=lambda _tensor: kernels, pairs_by_expert=sort):
            trainer.train_step(batch)
            account.parts.clear()
            with account:
                trainer.train_step(batch)
    return account.parts


def account_points(setting: Setting) -> Iterator[Point]:
    """The account of a step of each shape with the default precision of an H100, and with float32 products."""
    for shape in shapes(setting.tiny):
        for precision in PRECISIONS:
            parts = step_account(shape, precision)
            kernels = sum(part.kernels for part in parts.values())
            yield {
                "estimate": True,
                "shape": shape.name,
                "tokens": shape.tokens,
                "precision": precision,
                "milliseconds": 1e3 * sum(part.seconds for part in parts.values()),
                "kernels": kernels,
                "launch_milliseconds": 1e3 * LAUNCH_SECONDS * kernels,
                "parts": {name: part.__dict__ for name, part in sorted(parts.items())},
            }
