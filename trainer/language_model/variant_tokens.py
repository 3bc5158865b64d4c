"""Variants of single tokens in one forward pass, for measurements that change one token and read its prediction.

Behind the tokens of a text, one more token is appended for each variant. It has the position of the token that it is a
variant of, and attends to that token's predecessors and to itself. The text does not attend to variants, nor variants
to one another. So each is computed as if the text ended with it, at the cost of one token instead of a text.

Shapes: T tokens, R variants, W residual width, D head width; masks [1, 1, T, T].
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

DIMENSIONS = {"position_embeddings": -2, "position_ids": -1, "cache_position": -1}
"""Arguments of a block with one entry per token, and their dimension of tokens."""


@contextmanager
def variant_tokens(blocks: nn.ModuleList, first: int, position_R: Tensor) -> Iterator[list[Tensor]]:
    """Append variants of the tokens at ``position_R`` at block ``first``, for the forward passes of one text without a
    cache inside the context. Hidden states of that block and the next are [1, T + R, W].

    Yields a list. Each forward pass adds to it the residual stream of the variants after the last block, [R, W]. Raises
    LookupError in the forward pass if the blocks take masks of another form.
    """

    def append(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        names = list(inspect.signature(type(block).forward).parameters)[1:]  # without self
        given = dict(zip(names, args, strict=False)) | kwargs
        hidden = given.pop(names[0])
        if block is blocks[first]:
            hidden = _appended(hidden, position_R, 1)
        given = {name: _appended(value, position_R, DIMENSIONS.get(name)) for name, value in given.items()}
        return (hidden,), {**given, "attention_mask": _mask(given.get("attention_mask"), hidden, position_R)}

    def take(_block: nn.Module, _inputs: Any, output: Any) -> Any:
        hidden = output[0] if isinstance(output, tuple | list) else output
        length = hidden.shape[1] - len(position_R)
        residuals.append(hidden[0, length:].clone())
        return (hidden[:, :length], *output[1:]) if isinstance(output, tuple | list) else hidden[:, :length]

    residuals: list[Tensor] = []
    with ExitStack() as stack:
        stack.callback(blocks[-1].register_forward_hook(take).remove)
        for block in blocks[first:]:
            stack.callback(block.register_forward_pre_hook(append, with_kwargs=True).remove)
        yield residuals


def _appended(value: Any, position_R: Tensor, dimension: int | None) -> Any:
    if isinstance(value, tuple):
        return tuple(_appended(part, position_R, dimension) for part in value)
    if dimension is None or not isinstance(value, Tensor):
        return value
    return torch.cat([value, value.index_select(dimension, position_R.to(value.device))], dim=dimension)


def _mask(mask: Any, hidden: Tensor, position_R: Tensor) -> Tensor:
    """The mask of the text with variants, [1, 1, T + R, T + R]. None stands for causal attention."""
    size, variants = hidden.shape[1], len(position_R)
    length = size - variants
    if mask is None:
        blocked = torch.finfo(hidden.dtype).min
        mask = torch.full((1, 1, length, length), blocked, dtype=hidden.dtype, device=hidden.device).triu(1)
    elif not isinstance(mask, Tensor) or mask.shape != (1, 1, length, length):
        raise LookupError("The mask of this block does not have the shape [1, 1, T, T].")
    blocked = False if mask.dtype == torch.bool else torch.finfo(mask.dtype).min
    position_R = position_R.to(mask.device)
    extended: Tensor = mask.new_full((1, 1, size, size), blocked)
    extended[..., :length, :length] = mask
    rows_RT = mask[0, 0, position_R]
    row_R = torch.arange(variants, device=mask.device)
    extended[0, 0, length + row_R, length + row_R] = rows_RT[row_R, position_R]
    rows_RT[row_R, position_R] = blocked
    extended[0, 0, length:, :length] = rows_RT
    return extended
