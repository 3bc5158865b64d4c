"""Many sequences growing together: rows join, take one token a step, and leave, each with its own edits.

All rows share one key-value cache, padded on the left to the longest. A row that joins is read by itself and laid
beside the others, so a long prompt never makes short ones longer to compute than they are.

Shapes: B rows, T tokens, I input width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import DynamicCache

from trainer.edits import EditedBlock, LayerEdits
from trainer.language_model import LanguageModel
from trainer.layers.sparse import Routing, SparseLayer


@dataclass(frozen=True)
class Touches:
    """Which positions of a row edits touch."""

    first: int = 0
    end: int | None = None
    """The first position after the last; None where there is no last."""
    only: frozenset[int] | None = None

    def position(self, position: int) -> bool:
        """Whether edits touch this position."""
        within = self.first <= position and (self.end is None or position < self.end)
        return within and (self.only is None or position in self.only)


@dataclass(eq=False)
class Row:
    """One growing sequence."""

    ids: list[int]
    edits: Mapping[int, LayerEdits] = field(default_factory=dict)
    """Block -> what answers for its MLP and how it is edited; the other blocks are untouched."""
    touches: Touches = field(default_factory=lambda: Touches())

    def touched(self, start: int, stop: int) -> list[bool]:
        """For each position from ``start`` to ``stop``: whether edits touch it."""
        return [self.touches.position(position) for position in range(start, stop)]


@dataclass(frozen=True)
class Step:
    """What one forward pass gives for some rows."""

    logits_BV: Tensor
    """Of each row's next token."""
    log_p_BV: Tensor
    """The same as log-probabilities."""
    blocks: Mapping[int, EditedBlock]
    places: Sequence[int]
    """Each row's place in the forward pass."""

    def last_seen(self, block: int, rows: Sequence[int]) -> tuple[SparseLayer, Tensor, Routing]:
        """The layer at a block of some rows that share it, its input at their last token [R, I], its routing there."""
        return self.blocks[block].last_seen([self.places[row] for row in rows])


class RowBatch:
    """Rows that take their steps together on one language model. Not for use by two threads at a time."""

    def __init__(self, language_model: LanguageModel) -> None:
        self.language_model = language_model
        self.rows: list[Row] = []
        self._cache = DynamicCache()
        self._lengths: list[int] = []

    @torch.inference_mode()
    def join(self, prompts: Sequence[Row], continued_by: Sequence[tuple[int, Row]]) -> Step:
        """Read prompts of equal length, and let rows go on from them; returns what follows for the joining rows.

        Args:
            prompts: what is read, each once.
            continued_by: for each row that joins, the prompt that it goes on from, and the row.
        """
        lengths = {len(prompt.ids) for prompt in prompts}
        assert len(lengths) == 1
        (length,) = lengths
        fresh = DynamicCache()
        read = self._forward(list(prompts), [prompt.ids for prompt in prompts], [0] * len(prompts), fresh)
        places = [prompt for prompt, _ in continued_by]
        chosen = torch.tensor(places, device=read.logits_BV.device)
        fresh.batch_select_indices(chosen)
        self._lay_beside(fresh, length)
        self.rows.extend(row for _, row in continued_by)
        self._lengths.extend([length] * len(continued_by))
        return Step(read.logits_BV[chosen], read.log_p_BV[chosen], read.blocks, places)

    @torch.inference_mode()
    def step(self) -> Step:
        """Read the newest token of every row."""
        stepped = self._forward(self.rows, [row.ids[-1:] for row in self.rows], self._lengths, self._cache)
        self._lengths = [length + 1 for length in self._lengths]
        return stepped

    def leave(self, rows: Sequence[Row]) -> None:
        """Let rows go."""
        if not rows:
            return
        leaving = {id(row) for row in rows}
        kept = [place for place, row in enumerate(self.rows) if id(row) not in leaving]
        self.rows = [self.rows[place] for place in kept]
        self._lengths = [self._lengths[place] for place in kept]
        if not kept:
            self._cache = DynamicCache()
            return
        spare = self._cache.get_seq_length() - max(self._lengths)
        with torch.inference_mode():
            chosen = torch.tensor(kept, device=self.language_model.device)
            for layer in _layers(self._cache):
                layer.keys = layer.keys[chosen][..., spare:, :]
                layer.values = layer.values[chosen][..., spare:, :]

    def _forward(self, rows: list[Row], ids: list[list[int]], before: Sequence[int], cache: DynamicCache) -> Step:
        """Read ``ids``, of which row b has read ``before[b]`` already."""
        device, new = self.language_model.device, len(ids[0])
        held = cache.get_seq_length()
        lengths_B1 = torch.tensor(before, device=device).unsqueeze(1)
        blocks = _edited_blocks(rows, before, new)
        with self.language_model.stand_in(blocks):
            output: Any = self.language_model.module(
                input_ids=torch.tensor(ids, device=device),
                attention_mask=_mask(before, held, new, device),
                position_ids=lengths_B1 + torch.arange(new, device=device),
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
        logits_BV: Tensor = output.logits[:, -1].float()
        return Step(logits_BV, logits_BV.log_softmax(dim=-1), blocks, range(len(rows)))

    def _lay_beside(self, fresh: DynamicCache, length: int) -> None:
        if not self.rows:
            self._cache = fresh
            return
        held = self._cache.get_seq_length()
        for old, new in zip(_layers(self._cache), _layers(fresh), strict=True):
            old.keys = _beside(old.keys, new.keys, held, length)
            old.values = _beside(old.values, new.values, held, length)


def _layers(cache: DynamicCache) -> list[Any]:
    """The cache's layers, each with ``keys`` and ``values`` [B, heads, T, D]."""
    return list(cache.layers)


def _mask(before: Sequence[int], held: int, new: int, device: torch.device) -> Tensor | None:
    """[B, held + new]: 0 over the padding on the left; None where there is none, which lets attention be faster."""
    if all(length == held for length in before):
        return None
    lengths_B1 = torch.tensor(before, device=device).unsqueeze(1)
    return (torch.arange(held + new, device=device) >= held - lengths_B1).long()


def _beside(old: Tensor, new: Tensor, old_length: int, new_length: int) -> Tensor:
    """Two caches [B, heads, T, D] as one, the shorter padded on the left."""
    longest = max(old_length, new_length)
    padded = [F.pad(part, (0, 0, longest - part.shape[-2], 0)) for part in (old, new)]
    return torch.cat(padded)


def _edited_blocks(rows: list[Row], before: Sequence[int], new: int) -> dict[int, EditedBlock]:
    blocks: dict[int, EditedBlock] = {}
    for place, row in enumerate(rows):
        for block, edits in row.edits.items():
            touched = row.touched(before[place], before[place] + new)
            blocks.setdefault(block, EditedBlock(len(rows))).add(place, edits, touched)
    return blocks
