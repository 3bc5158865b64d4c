"""The key-value cache of a growing batch: tokens are written in place, and rows can be appended, copied and removed.

Each change of rows is prepared for all layers before it is applied. Running out of memory halfway therefore leaves the
cache unchanged.

Blocks before the first edit are computed once for rows with the same tokens. Rows that have the same tokens and differ
only in their edits are one text up to the first edited block. From that block on, each row has its own hidden states,
keys and values.

Measurements that change one token and read its prediction need no row each. Behind the tokens of a text, one more token
is appended for each variant. It has the position of the token that it is a variant of, and attends to that token's
predecessors and to itself. The text does not attend to variants, nor variants to one another. So each is computed as if
the text ended with it, at the cost of one token instead of a text.

Shapes: R texts or variants, B rows, T tokens, W residual width, D head width, as in keys [B, heads, T, D]; masks
[1, 1, T, T].
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer
from typing_extensions import override

from mxd.trainer.errors import check_overrides

SPARE_TOKENS = 64

KeysAndValues = tuple[Tensor, Tensor]


@check_overrides
class GrowableLayer(DynamicLayer):
    """Keys and values of one block, in buffers with spare capacity: a step writes its tokens and copies no others."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]
        self._buffers: KeysAndValues | None = None

    @override
    def update(self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any) -> KeysAndValues:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[..., :0, :], value_states[..., :0, :]
        keys, values = self.pair
        length = keys.shape[-2]
        end = length + key_states.shape[-2]
        if self._buffers is None or self._buffers[0].shape[-2] < end:
            self._buffers = _enlarged(keys, end + SPARE_TOKENS), _enlarged(values, end + SPARE_TOKENS)
        for buffer, new in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[..., length:end, :] = new
        self.keys, self.values = (buffer[..., :end, :] for buffer in self._buffers)
        return self.pair

    @property
    def pair(self) -> KeysAndValues:
        assert self.keys is not None and self.values is not None
        return self.keys, self.values

    def truncate(self, length: int) -> None:
        if self.is_initialized:
            self.keys, self.values = (part[..., :length, :] for part in self.pair)


class GrowableCache(DynamicCache):
    """Keys and values of all blocks, left-padded to the longest row; blocks may have different rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer_class_to_replicate = GrowableLayer

    @property
    def num_pairs(self) -> int:
        return len(self._growable())

    def truncate(self, length: int) -> None:
        """Keep only the first ``length`` tokens, in the blocks that have more."""
        for layer in self._growable():
            layer.truncate(length)

    def reorder(self, rows_by_block: Sequence[list[int]], skip: int = 0) -> None:
        """Select and reorder the rows of each block, by the indices of its present rows in their new order; an index
        may repeat. ``skip`` padding tokens are dropped at the start."""
        layers = zip(self._growable(), rows_by_block, strict=True)
        self._assign([[_selected(part, rows, skip) for part in layer.pair] for layer, rows in layers])

    def append_rows(self, other: Self) -> None:
        """Append the rows of another cache; the shorter of the two is padded on the left."""
        layers = zip(self._growable(), other._growable(), strict=True)
        self._assign([list(map(_concatenated, old.pair, new.pair)) for old, new in layers])

    def _assign(self, pairs: Sequence[Sequence[Tensor]]) -> None:
        for layer, (keys, values) in zip(self._growable(), pairs, strict=True):
            layer.keys, layer.values, layer._buffers = keys, values, None

    def _growable(self) -> list[GrowableLayer]:
        return [layer for layer in self.layers if isinstance(layer, GrowableLayer)]


def _enlarged(part: Tensor, length: int) -> Tensor:
    buffer = part.new_zeros(*part.shape[:-2], length, part.shape[-1])
    buffer[..., : part.shape[-2], :] = part
    return buffer


def _selected(part: Tensor, rows: list[int], skip: int) -> Tensor:
    return part[torch.tensor(rows, device=part.device)][..., skip:, :]


def _concatenated(old: Tensor, new: Tensor) -> Tensor:
    longest = max(old.shape[-2], new.shape[-2])
    return torch.cat([F.pad(part, (0, 0, longest - part.shape[-2], 0)) for part in (old, new)])


@contextmanager
def shared_prefix(blocks: nn.ModuleList, first: int, text_of_B: Sequence[int]) -> Iterator[None]:
    """Expand texts to rows at block ``first`` for the forward passes inside the context. ``text_of_B`` has the index of
    each row's text; every text has at least one row."""
    num_texts = max(text_of_B) + 1
    on_device = cache(lambda device: torch.tensor(text_of_B, device=device))  # each copy would wait for the device

    def expand(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(expand(part) for part in value)
        if isinstance(value, Tensor) and value.dim() > 1 and len(value) == num_texts:
            return value.index_select(0, on_device(value.device))
        return value

    def before_block(_block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        # Hidden states at the first block, masks and positions at every block.
        return expand(args), {name: expand(value) for name, value in kwargs.items()}

    with ExitStack() as stack:
        for block in blocks[first:] if num_texts < len(text_of_B) else ():
            stack.callback(block.register_forward_pre_hook(before_block, with_kwargs=True).remove)
        yield


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
