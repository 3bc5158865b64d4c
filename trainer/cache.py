"""The key-value cache of a batch that grows: written in place, rows laid beside it, copied and taken away whole.

Every change to rows is made ready for all layers first and put in place afterwards, so that running out of memory in
the middle leaves the cache as it was.

Shapes: B rows, T tokens, D values of a head, as in keys [B, heads, T, D].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

ROOM = 64
"""Tokens for which room is made at a time."""

Pair = tuple[Tensor, Tensor]


class RoomyLayer(DynamicLayer):
    """Keys and values of one block, in buffers with room for more tokens: a step writes its own, and copies none."""

    def __init__(self, *words: Any, **settings: Any) -> None:
        super().__init__(*words, **settings)  # type: ignore[no-untyped-call]
        self._room: Pair | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *_words: Any, **_settings: Any) -> Pair:
        """Add the newest tokens; returns keys and values of all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[..., :0, :], value_states[..., :0, :]
        keys, values = self.pair
        held = keys.shape[-2]
        end = held + key_states.shape[-2]
        if self._room is None or self._room[0].shape[-2] < end:
            self._room = _with_room(keys, end + ROOM), _with_room(values, end + ROOM)
        for buffer, new in zip(self._room, (key_states, value_states), strict=True):
            buffer[..., held:end, :] = new
        self.keys, self.values = (buffer[..., :end, :] for buffer in self._room)
        return self.pair

    @property
    def pair(self) -> Pair:
        """Keys and values of all tokens so far."""
        assert self.keys is not None and self.values is not None
        return self.keys, self.values

    def put(self, pair: Pair) -> None:
        """Let other rows take the place of all."""
        self.keys, self.values = pair
        self._room = None

    def cut(self, length: int) -> None:
        """Forget all tokens past the first ``length``."""
        if self.is_initialized:
            self.keys, self.values = (part[..., :length, :] for part in self.pair)


class RoomyCache(DynamicCache):
    """Keys and values of all blocks, padded on the left to the longest row; blocks may differ in their rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer_class_to_replicate = RoomyLayer

    def cut(self, length: int) -> None:
        """Forget all tokens past the first ``length``, in whatever blocks have them."""
        for layer in self._own():
            layer.cut(length)

    def arrange(self, places: Sequence[list[int]], spare: int = 0) -> None:
        """Let other rows take the place of all: of each block some of those that it has, any of them more than once.

        Args:
            places: block -> which of its rows stand there from now on, in their order.
            spare: tokens at the beginning that are left out.
        """
        ready = [
            (_chosen(layer.pair[0], chosen, spare), _chosen(layer.pair[1], chosen, spare))
            for layer, chosen in zip(self._own(), places, strict=True)
        ]
        self._put(ready)

    def lay_beside(self, fresh: RoomyCache) -> None:
        """Add the rows of another cache behind the others, the shorter padded on the left."""
        ready = [
            (_beside(old.pair[0], new.pair[0]), _beside(old.pair[1], new.pair[1]))
            for old, new in zip(self._own(), fresh._own(), strict=True)
        ]
        self._put(ready)

    def _put(self, ready: list[Pair]) -> None:
        for layer, pair in zip(self._own(), ready, strict=True):
            layer.put(pair)

    def _own(self) -> list[RoomyLayer]:
        return [layer for layer in self.layers if isinstance(layer, RoomyLayer)]


def _with_room(part: Tensor, length: int) -> Tensor:
    buffer = part.new_zeros(*part.shape[:-2], length, part.shape[-1])
    buffer[..., : part.shape[-2], :] = part
    return buffer


def _chosen(part: Tensor, places: list[int], spare: int) -> Tensor:
    return part[torch.tensor(places, device=part.device)][..., spare:, :]


def _beside(old: Tensor, new: Tensor) -> Tensor:
    longest = max(old.shape[-2], new.shape[-2])
    return torch.cat([F.pad(part, (0, 0, longest - part.shape[-2], 0)) for part in (old, new)])
