"""Many sequences growing together: rows join, take one token a step, and leave, each with its own edits.

All rows share one key-value cache, padded on the left to the longest. A row that joins is read by itself and laid
beside the others, so a long prompt never makes short ones longer to compute than they are. Rows that hold the same list
of tokens are one text, which is read once up to the first block that edits touch in any row.

Shapes: B rows, T tokens, I input width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from trainer.cache import RoomyCache
from trainer.comparison import Compared, Wanted, choose_and_compare
from trainer.config import Sampling
from trainer.edits import EditedBlock, LayerEdits
from trainer.language_model import LanguageModel
from trainer.parting import parted
from trainer.routing import RoutedExpert


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


@dataclass(frozen=True, eq=False)
class Writer:
    """How the text of a row goes on, and what is told of it."""

    sampling: Sampling
    seed: int
    start: int
    """Tokens of the prompt."""
    other: Row
    """Holds the same text, as the other arm reads it."""
    block: int
    """Whose routing is told."""


@dataclass(eq=False)
class Row:
    """One growing sequence."""

    ids: list[int]
    edits: Mapping[int, LayerEdits] = field(default_factory=dict)
    """Block -> what answers for its MLP and how it is edited; the other blocks are untouched."""
    touches: Touches = field(default_factory=lambda: Touches())
    writer: Writer | None = None
    """None where no text is written from this row: it is there to be compared with."""

    def touched(self, start: int, stop: int) -> list[bool]:
        """For each position from ``start`` to ``stop``: whether edits touch it."""
        return [self.touches.position(position) for position in range(start, stop)]


@dataclass(frozen=True)
class Step:
    """What one forward pass gives for some rows; what is told of them is worked out when it is first asked for."""

    language_model: LanguageModel
    rows: Sequence[Row]
    logits_BV: Tensor
    """Of each row's next token."""
    log_p_BV: Tensor
    """The same as log-probabilities."""
    blocks: Mapping[int, EditedBlock]
    places: Sequence[int]
    """Each row's place in the forward pass."""

    @cached_property
    @torch.inference_mode()
    def taken(self) -> Mapping[Row, Compared]:
        """The next token of each row that a text is written from, compared with the other arm's."""
        place = {row: number for number, row in enumerate(self.rows)}
        writing = {row: row.writer for row in self.rows if row.writer is not None}
        wanted = [
            Wanted(place[row], place[it.other], row.ids, it.sampling, it.seed, len(row.ids) - it.start)
            for row, it in writing.items()
        ]
        found = choose_and_compare(self.logits_BV, self.log_p_BV, wanted, self.language_model)
        return dict(zip(writing, found, strict=True))

    @cached_property
    @torch.inference_mode()
    def experts(self) -> Mapping[Row, tuple[RoutedExpert, ...]]:
        """The experts that were active on the last token of each row that a text is written from."""
        place = dict(zip(self.rows, self.places, strict=True))
        found: dict[Row, tuple[RoutedExpert, ...]] = {}
        blocks = {row.writer.block: self.blocks[row.writer.block] for row in self.rows if row.writer is not None}
        for block, edited in blocks.items():
            writing = [row for row in self.rows if row.writer is not None and row.writer.block == block]
            told = edited.last_experts([place[row] for row in writing])
            found |= dict(zip(writing, told, strict=True))
        return found


class Arrangement:
    """Which rows a block works on: up to some block one of each text, from there on all."""

    def __init__(self, rows: Sequence[Row], parts_at: int) -> None:
        """Rows that hold the same list of tokens are one text before block ``parts_at``, the first to work on all."""
        self.rows = list(rows)
        self.parts_at = parts_at
        # Where rows part at the very first block, each is a text of its own.
        keys = [id(row.ids) if parts_at else id(row) for row in self.rows]
        first: dict[int, Row] = {}
        for key, row in zip(keys, self.rows, strict=True):
            first.setdefault(key, row)
        self.texts = list(first.values())
        """The first row of each text."""
        text = {key: place for place, key in enumerate(first)}
        self.text_of = [text[key] for key in keys]
        """Each row's text, by its place."""

    def places(self, blocks: int, wanted: Arrangement, sources: Mapping[Row, Row]) -> list[list[int]]:
        """Block -> where it has what another arrangement wants there, for each of its rows.

        Args:
            sources: row that is wanted -> the row that it goes on from; itself where none is named.
        """
        place = {row: number for number, row in enumerate(self.rows)}
        of_rows = [place[sources.get(row, row)] for row in wanted.rows]
        of_texts = [place[sources.get(row, row)] for row in wanted.texts]
        found = [of_texts if block < wanted.parts_at else of_rows for block in range(blocks)]
        return [
            [self.text_of[row] for row in rows] if block < self.parts_at else rows for block, rows in enumerate(found)
        ]


class RowBatch:
    """Rows that take their steps together on one language model. Not for use by two threads at a time."""

    def __init__(self, language_model: LanguageModel) -> None:
        self.language_model = language_model
        self.arranged = Arrangement([], 0)
        """All rows, and where those of one text part."""
        self._cache = RoomyCache()
        self._lengths: dict[Row, int] = {}

    @property
    def rows(self) -> Sequence[Row]:
        """All rows, in the order of what a step gives."""
        return self.arranged.rows

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
        places, rows = [prompt for prompt, _ in continued_by], [row for _, row in continued_by]
        parts_at = self._parts_at([*self.rows, *prompts])
        fresh, reading = RoomyCache(), Arrangement(prompts, parts_at)
        read = self._forward(reading, length, dict.fromkeys(prompts, 0), fresh)
        joining, sources = Arrangement(rows, parts_at), {row: prompts[place] for place, row in continued_by}
        fresh.arrange(reading.places(self._blocks, joining, sources))
        if self.rows:
            self._arrange(Arrangement(self.rows, parts_at))
            self._cache.lay_beside(fresh)
        else:
            self._cache = fresh
        self.arranged = Arrangement([*self.rows, *rows], parts_at)
        self._lengths |= dict.fromkeys(rows, length)
        return replace(read, rows=rows, logits_BV=read.logits_BV[places], log_p_BV=read.log_p_BV[places], places=places)

    @torch.inference_mode()
    def step(self) -> Step:
        """Read the newest token of every row. Where that fails, no row has read anything."""
        held = self._cache.get_seq_length()
        done = False
        try:
            stepped = self._forward(self.arranged, 1, self._lengths, self._cache)
            done = True
        finally:
            if not done:
                self._cache.cut(held)
        self._lengths = {row: length + 1 for row, length in self._lengths.items()}
        return stepped

    @torch.inference_mode()
    def fork(self, forks: Sequence[tuple[Row, Row]]) -> None:
        """Let rows go on from what others have read so far.

        Args:
            forks: a row of the batch, and the row that joins with its past.
        """
        if not forks:
            return
        joining = [row for _, row in forks]
        arranged = Arrangement([*self.rows, *joining], self.arranged.parts_at)
        self._arrange(arranged, {row: source for source, row in forks})
        self._lengths |= {row: self._lengths[source] for source, row in forks}

    @torch.inference_mode()
    def leave(self, rows: Sequence[Row]) -> None:
        """Let rows go; those that have gone already are no matter."""
        leaving = set(rows)
        kept = [row for row in self.rows if row not in leaving]
        if len(kept) == len(self.rows):
            return
        lengths = {row: self._lengths[row] for row in kept}
        if kept:
            spare = self._cache.get_seq_length() - max(lengths.values())
            self._arrange(Arrangement(kept, self._parts_at(kept)), spare=spare)
        else:
            self._cache, self.arranged = RoomyCache(), Arrangement([], 0)
        self._lengths = lengths

    @property
    def _blocks(self) -> int:
        return len(self.language_model.anatomy.blocks)

    def _parts_at(self, rows: Sequence[Row]) -> int:
        """The first block that may give rows of one text different answers."""
        edited = min((block for row in rows for block in row.edits), default=0)
        return edited if edited and self.language_model.parts(edited) else 0

    def _arrange(self, arranged: Arrangement, sources: Mapping[Row, Row] | None = None, spare: int = 0) -> None:
        self._cache.arrange(self.arranged.places(self._blocks, arranged, sources or {}), spare)
        self.arranged = arranged

    def _forward(self, arranged: Arrangement, new: int, before: Mapping[Row, int], cache: RoomyCache) -> Step:
        """Read the ``new`` newest tokens of every row, of which ``before`` says how many it has read already."""
        device, rows, texts = self.language_model.device, arranged.rows, arranged.texts
        held = cache.get_seq_length()
        lengths = [before[text] for text in texts]
        blocks = _edited_blocks(rows, before, new)
        parting = parted(self.language_model.anatomy.blocks, arranged.parts_at, arranged.text_of)
        with parting, self.language_model.stand_in(blocks):
            output: Any = self.language_model.module(
                input_ids=torch.tensor([text.ids[-new:] for text in texts], device=device),
                attention_mask=_mask(lengths, held, new, device),
                position_ids=torch.tensor(lengths, device=device).unsqueeze(1) + torch.arange(new, device=device),
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
        logits_BV: Tensor = output.logits[:, -1].float()
        log_p_BV = logits_BV.log_softmax(dim=-1)
        return Step(self.language_model, tuple(rows), logits_BV, log_p_BV, blocks, range(len(rows)))


def _mask(lengths: Sequence[int], held: int, new: int, device: torch.device) -> Tensor | None:
    """[R, held + new]: 0 over the padding on the left; None where there is none, which lets attention be faster."""
    if all(length == held for length in lengths):
        return None
    lengths_R1 = torch.tensor(lengths, device=device).unsqueeze(1)
    return (torch.arange(held + new, device=device) >= held - lengths_R1).long()


def _edited_blocks(rows: Sequence[Row], before: Mapping[Row, int], new: int) -> dict[int, EditedBlock]:
    blocks: dict[int, EditedBlock] = {}
    for place, row in enumerate(rows):
        for block, edits in row.edits.items():
            touched = row.touched(before[row], before[row] + new)
            blocks.setdefault(block, EditedBlock(len(rows))).add(place, edits, touched)
    for block, edited in list(blocks.items()):
        for distance in range(1, edited.reach):
            blocks.setdefault(block + distance, EditedBlock(len(rows))).follow(edited, distance)
    return blocks
