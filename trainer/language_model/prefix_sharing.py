"""Computing the blocks before the first edit only once for batch rows with the same tokens.

Rows that have the same tokens and differ only in their edits are one text up to the first edited block. From that block
on, each row has its own hidden states, keys and values.

Shapes: R texts, B rows, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def shared_prefix(blocks: nn.ModuleList, first: int, text_of_B: Sequence[int]) -> Iterator[None]:
    """Expand texts to rows at a block for the forward passes inside the context.

    Args:
        blocks: all blocks of a language model whose input is R texts.
        first: index of the first block that computes B rows.
        text_of_B: index of each row's text, 0 to R - 1; every text has at least one row.
    """
    num_texts = max(text_of_B) + 1
    with ExitStack() as stack:
        if num_texts < len(text_of_B):
            # One copy per device: each copy would wait for the device.
            on_device = cache(lambda device: torch.tensor(text_of_B, device=device))
            hook = partial(_expand, num_texts, on_device)
            for block in blocks[first:]:
                stack.callback(block.register_forward_pre_hook(hook, with_kwargs=True).remove)
        yield


def _expand(
    num_texts: int,
    text_of_B: Callable[[torch.device], Tensor],
    _block: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Expand tensors of R texts to B rows: hidden states at the first block, masks and positions at every block."""

    def expand(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(expand(part) for part in value)
        if isinstance(value, Tensor) and value.dim() > 1 and len(value) == num_texts:
            return value.index_select(0, text_of_B(value.device))
        return value

    return expand(args), {name: expand(value) for name, value in kwargs.items()}
