"""Texts that become several rows on their way through a language model.

Rows that hold the same text and differ in their edits alone are one row up to the first block that is edited. There
they part: from this block on each row has hidden states, keys and values of its own, and before it each text has.

Shapes: R texts, B rows, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def parted(blocks: nn.ModuleList, first: int, text_of_B: Sequence[int]) -> Iterator[None]:
    """Let texts part into rows at a block; everything is as it was on leaving.

    Args:
        blocks: all blocks of a language model, which is given R texts.
        first: the block that is the first to work on B rows.
        text_of_B: each row's text, 0 to R - 1; every text has a row.
    """
    texts = max(text_of_B) + 1
    with ExitStack() as stack:
        if texts < len(text_of_B):  # where each text is one row, there is nothing to do
            hook = partial(_part, texts, torch.tensor(text_of_B))
            for block in blocks[first:]:
                stack.callback(block.register_forward_pre_hook(hook, with_kwargs=True).remove)
        yield


def _part(
    texts: int, text_of_B: Tensor, _block: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Give a block B rows of everything of which it was given R: its input once, masks and positions at every block."""

    def rows(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(rows(part) for part in value)
        if isinstance(value, Tensor) and value.dim() > 1 and len(value) == texts:
            return value.index_select(0, text_of_B.to(value.device))
        return value

    return rows(inputs), {name: rows(value) for name, value in named.items()}
