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

from trainer.cache import RoomyCache
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
        self._cache = RoomyCache()
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
        fresh = RoomyCache()
        read = self._forward(list(prompts), [prompt.ids for prompt in prompts], [0] * len(prompts), fresh)
        places = [prompt for prompt, _ in continued_by]
        fresh.select(places)
        if self.rows:
            self._cache.lay_beside(fresh)
        else:
            self._cache = fresh
        self.rows.extend(row for _, row in continued_by)
        self._lengths.extend([length] * len(continued_by))
        return Step(read.logits_BV[places], read.log_p_BV[places], read.blocks, places)

    @torch.inference_mode()
    def step(self) -> Step:
        """Read the newest token of every row. Where that fails, no row has read anything."""
        held = self._cache.get_seq_length()
        done = False
        try:
            stepped = self._forward(self.rows, [row.ids[-1:] for row in self.rows], self._lengths, self._cache)
            done = True
        finally:
            if not done:
                self._cache.cut(held)
        self._lengths = [length + 1 for length in self._lengths]
        return stepped

    @torch.inference_mode()
    def fork(self, forks: Sequence[tuple[Row, Row]]) -> None:
        """Let rows go on from what others have read so far.

        Args:
            forks: a row of the batch, and the row that joins with its past.
        """
        if not forks:
            return
        places = {id(row): place for place, row in enumerate(self.rows)}
        sources = [places[id(source)] for source, _ in forks]
        self._cache.repeat(sources)
        self.rows.extend(row for _, row in forks)
        self._lengths.extend(self._lengths[place] for place in sources)

    @torch.inference_mode()
    def leave(self, rows: Sequence[Row]) -> None:
        """Let rows go; those that have gone already are no matter."""
        leaving = {id(row) for row in rows}
        kept = [place for place, row in enumerate(self.rows) if id(row) not in leaving]
        if len(kept) == len(self.rows):
            return
        lengths = [self._lengths[place] for place in kept]
        if kept:
            self._cache.select(kept, spare=self._cache.get_seq_length() - max(lengths))
        else:
            self._cache = RoomyCache()
        self.rows, self._lengths = [self.rows[place] for place in kept], lengths

    def _forward(self, rows: list[Row], ids: list[list[int]], before: Sequence[int], cache: RoomyCache) -> Step:
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


def _mask(before: Sequence[int], held: int, new: int, device: torch.device) -> Tensor | None:
    """[B, held + new]: 0 over the padding on the left; None where there is none, which lets attention be faster."""
    if all(length == held for length in before):
        return None
    lengths_B1 = torch.tensor(before, device=device).unsqueeze(1)
    return (torch.arange(held + new, device=device) >= held - lengths_B1).long()


def _edited_blocks(rows: list[Row], before: Sequence[int], new: int) -> dict[int, EditedBlock]:
    blocks: dict[int, EditedBlock] = {}
    for place, row in enumerate(rows):
        for block, edits in row.edits.items():
            touched = row.touched(before[place], before[place] + new)
            blocks.setdefault(block, EditedBlock(len(rows))).add(place, edits, touched)
    return blocks
