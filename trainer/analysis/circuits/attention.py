"""Attention with a constant pattern, which is recomputed in blocks of queries wherever it is needed.

    output = A value,  gradient of value = A^T (gradient of output),  A = softmax(scale * query key^T + mask)

No T x T matrix of a layer is kept, so memory grows with the number of tokens, not with its square. One recomputed
pattern serves all rows of a batched backward pass (``is_grads_batched``), because the rows are columns of one product.

Shapes: B rows of the text, H heads, J heads of keys and values (H is a multiple of J), T tokens, D width of a head,
R rows of a batched backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

SCORES_AT_A_TIME = 1 << 23
"""Number of attention scores that are computed at once: 32 MB in float32."""


class PatternBlock(NamedTuple):
    """Attention pattern of some consecutive queries."""

    first: int
    """Position of the first query."""
    pattern_BHQT: Tensor
    """Weights of the keys up to the last visible one."""


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """Inputs of ``scaled_dot_product_attention``, from which its pattern follows."""

    query_BHTD: Tensor
    key_BJTD: Tensor
    mask: Tensor | None
    """Boolean, or added to the scores; broadcasts to [B, H, T, T]."""
    is_causal: bool
    scale: float

    @property
    def group(self) -> int:
        """Number of heads that share one head of keys and values."""
        return self.query_BHTD.shape[1] // self.key_BJTD.shape[1]

    def detached(self) -> AttentionCall:
        """The call without gradients."""
        return AttentionCall(self.query_BHTD.detach(), self.key_BJTD.detach(), self.mask, self.is_causal, self.scale)

    def of_head(self, head: int) -> AttentionCall:
        """The call of one head."""
        key_BJTD = self.key_BJTD[:, head // self.group].unsqueeze(1)
        mask = self.mask
        if mask is not None and mask.dim() == 4 and mask.shape[1] > 1:
            mask = mask[:, head : head + 1]
        return AttentionCall(self.query_BHTD[:, head : head + 1], key_BJTD, mask, self.is_causal, self.scale)

    def output(self, value_BJTD: Tensor) -> Tensor:
        """Output [B, H, T, D] for some values, by the kernel that the language model uses."""
        return F.scaled_dot_product_attention(
            self.query_BHTD,
            self.key_BJTD,
            value_BJTD,
            attn_mask=self.mask,
            is_causal=self.is_causal,
            scale=self.scale,
            enable_gqa=self.group > 1,
        )

    def pattern(self, first: int, last: int) -> Tensor:
        """Pattern of the queries from ``first`` to ``last``, exclusive, [B, H, last - first, keys]."""
        keys = last if self.is_causal else self.key_BJTD.shape[2]
        key_BHTD = self.key_BJTD[:, :, :keys].repeat_interleave(self.group, dim=1)
        scores_BHQT = self.query_BHTD[:, :, first:last] @ key_BHTD.transpose(2, 3) * self.scale
        if self.is_causal:
            queries_Q = torch.arange(first, last, device=scores_BHQT.device)
            hidden_QT = torch.arange(keys, device=scores_BHQT.device) > queries_Q.unsqueeze(1)
            scores_BHQT = scores_BHQT.masked_fill_(hidden_QT, -torch.inf)
        if self.mask is not None:
            mask = self.mask.expand(*self.mask.shape[:2], self.query_BHTD.shape[2], -1)[:, :, first:last]
            is_boolean = mask.dtype == torch.bool
            scores_BHQT = scores_BHQT.masked_fill_(~mask, -torch.inf) if is_boolean else scores_BHQT + mask
        return scores_BHQT.softmax(-1)

    def blocks(self) -> Iterator[PatternBlock]:
        """The whole pattern in blocks of queries."""
        rows, heads, tokens, _ = self.query_BHTD.shape
        step = max(1, SCORES_AT_A_TIME // (rows * heads * self.key_BJTD.shape[2]))
        for first in range(0, tokens, step):
            yield PatternBlock(first, self.pattern(first, min(first + step, tokens)))

    def value_gradient(self, gradient_BHTE: Tensor) -> Tensor:
        """A^T times a gradient of the output, summed over the heads that share values, [B, J, T, E]."""
        total_BJTE = gradient_BHTE.new_zeros(*self.key_BJTD.shape[:3], gradient_BHTE.shape[3])
        for first, pattern_BHQT in self.blocks():
            part_BHTE = pattern_BHQT.transpose(2, 3) @ gradient_BHTE[:, :, first : first + pattern_BHQT.shape[2]]
            total_BJTE[:, :, : part_BHTE.shape[2]] += part_BHTE.unflatten(1, (-1, self.group)).sum(2)
        return total_BJTE


class _FrozenAttention(torch.autograd.Function):
    """Output of an attention call, linear in the values."""

    @staticmethod
    def forward(value_BJTD: Tensor, call: AttentionCall) -> Tensor:
        return call.output(value_BJTD)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, AttentionCall], output: Tensor) -> None:  # noqa: ARG004
        ctx.call = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient_BHTD: Tensor) -> tuple[Tensor, None]:
        return _Transposed.apply(gradient_BHTD, ctx.call), None  # type: ignore[no-untyped-call]


class _Transposed(torch.autograd.Function):
    """Backward pass of ``_FrozenAttention``. Its own backward pass is the forward pass."""

    @staticmethod
    def forward(gradient_BHTD: Tensor, call: AttentionCall) -> Tensor:
        return call.value_gradient(gradient_BHTD)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, AttentionCall], output: Tensor) -> None:  # noqa: ARG004
        ctx.call = inputs[1]

    @staticmethod
    def backward(ctx: Any, tangent_BJTD: Tensor) -> tuple[Tensor, None]:
        return ctx.call.output(tangent_BJTD), None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, None], gradient: Tensor, call: AttentionCall
    ) -> tuple[Tensor, int | None]:
        """Compute all rows of a batched backward pass with one pattern."""
        if in_dims[0] is None:
            return call.value_gradient(gradient), None
        columns_BHTC = gradient.movedim(in_dims[0], -2).flatten(-2)
        return call.value_gradient(columns_BHTC).unflatten(-1, (info.batch_size, -1)), -2


def frozen_attention(value_BJTD: Tensor, call: AttentionCall) -> Tensor:
    """Output [B, H, T, D] of an attention call whose pattern is constant."""
    output_BHTD: Tensor = _FrozenAttention.apply(value_BJTD, call.detached())  # type: ignore[no-untyped-call]
    return output_BHTD
