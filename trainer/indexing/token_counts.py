"""How often each expert is active on each token of the vocabulary: exact, in memory that does not grow with the text.

Counts are runs of sorted 64-bit words, (expert, token) above its count, so that sorting, merging and adding up are
sorts of plain integers. What does not fit into a buffer goes to a file that has no name and is gone with the process,
however that ends; at the end the runs are read together, some experts at a time.

Shapes: N experts, P active (token, expert) pairs of a batch.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer.indexing.pairs import Floats, Ints, Pairs, run_lengths, run_starts

Words = NDArray[np.uint64]

COUNT_BITS = 24
MOST = 1 << COUNT_BITS
"""A larger count takes several words."""
RUNS = 32
"""Runs in the file before they are added up to one."""
ROWS_TOGETHER = 1 << 20
_RANKED_COUNT_BITS = 25
_RANKED_EXPERTS = 1 << 17
_PLACE_BITS = 21


class TokenSummary(NamedTuple):
    """Of experts ``first`` to ``first + len(entropy) - 1``."""

    first: int
    top_tokens: list[list[list[int]]]
    """For each its most frequent [token, count] pairs."""
    entropy: Floats
    """Of the tokens that each is active on, in bits."""


class TokenCounts:
    """Counts of (expert, token)."""

    def __init__(self, num_experts: int, vocabulary: int, folder: Path, room: int = 1 << 21) -> None:
        """``room`` pairs are held in memory; what is more goes to an unnamed file in ``folder``."""
        self.num_experts = num_experts
        self.vocabulary = vocabulary
        # Half the width, where it will do, is sorted in half the time.
        narrow = num_experts * vocabulary <= 1 << 32
        self._buffer = np.empty(room, np.uint32 if narrow else np.uint64)
        self._held = 0
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._runs: list[tuple[int, int]] = []
        """First word and number of words of each run in the file."""

    def add(self, pairs: Pairs, tokens_P: Ints) -> None:
        """Count a batch; ``tokens_P`` are the ids of the tokens."""
        keys_P = pairs.expert.astype(np.int64) * self.vocabulary + tokens_P
        while len(keys_P):
            fits = min(len(keys_P), len(self._buffer) - self._held)
            self._buffer[self._held : self._held + fits] = keys_P[:fits]
            self._held += fits
            keys_P = keys_P[fits:]
            if self._held == len(self._buffer):
                self.take(self._emptied())

    def take(self, words: Words) -> None:
        """Add a run of sorted words, such as one of another part's ``chunks``."""
        if len(words):
            self._append(words)
        if len(self._runs) > RUNS:
            self._unite()

    def chunks(self) -> Iterator[tuple[int, int, Words]]:
        """All counts, added up: (first expert, the one after the last, sorted words), a bounded number at a time."""
        if self._held:
            self.take(self._emptied())
        runs = [self._read(*place) for place in self._runs]
        bounds_N1 = np.arange(self.num_experts + 1, dtype=np.uint64) * np.uint64(self.vocabulary)
        bounds_RN1 = [np.searchsorted(run, bounds_N1 << np.uint64(COUNT_BITS)) for run in runs]
        rows_N1 = np.sum([np.zeros(self.num_experts + 1, np.int64), *bounds_RN1], axis=0)
        first = 0
        while first < self.num_experts:
            fits = int(np.searchsorted(rows_N1, rows_N1[first] + ROWS_TOGETHER, side="right")) - 1
            end = min(max(fits, first + 1), first + _RANKED_EXPERTS, self.num_experts)
            parts = [run[bounds[first] : bounds[end]] for run, bounds in zip(runs, bounds_RN1, strict=True)]
            words = np.concatenate([np.zeros(0, np.uint64), *parts])
            words.sort()
            yield first, end, _words(*_added_up(words))
            first = end

    def summaries(self, top: int) -> Iterator[TokenSummary]:
        """What there is to say of every expert, some experts at a time, in order."""
        for first, end, words in self.chunks():
            keys, counts = _added_up(words)
            experts, tokens = np.divmod(keys, np.uint64(self.vocabulary))
            experts = experts.astype(np.int64) - first
            totals = np.bincount(experts, counts, end - first)
            shares = counts / totals[experts]
            entropy = np.bincount(experts, -shares * np.log2(shares), end - first)
            order = _most_frequent_first(experts, counts)
            bounds = np.searchsorted(experts[order], np.arange(end - first + 1))
            chosen = [order[low : min(low + top, high)] for low, high in pairwise(bounds.tolist())]
            tops = [np.stack([tokens[rows].astype(np.int64), counts[rows]], axis=1).tolist() for rows in chosen]
            yield TokenSummary(first, tops, np.maximum(entropy, 0.0))

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()

    def _emptied(self) -> Words:
        keys = self._buffer[: self._held]
        keys.sort()
        starts = run_starts(keys)
        words = _words(keys[starts].astype(np.uint64), run_lengths(starts, len(keys)))
        self._held = 0
        return words

    def _append(self, words: Words) -> None:
        # Without a name, so that nothing is left behind, however this process ends.
        self._file = self._file or tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  # see close
        start = self._file.seek(0, os.SEEK_END) // words.itemsize
        words.tofile(self._file)
        self._file.flush()
        self._runs.append((start, len(words)))

    def _read(self, start: int, length: int) -> Words:
        assert self._file is not None
        return np.memmap(self._file, np.uint64, "r", start * 8, (length,))

    def _unite(self) -> None:
        united = TokenCounts(self.num_experts, self.vocabulary, self._folder, room=1)
        total = 0
        for _, _, words in self.chunks():
            united._append(words)
            total += len(words)
        self.close()
        # Chunks follow each other in the file and in order, so together they are one run.
        self._file, self._runs = united._file, [(0, total)]


def _added_up(words: Words) -> tuple[Words, Ints]:
    """Keys and counts of sorted words."""
    keys = words >> np.uint64(COUNT_BITS)
    starts = run_starts(keys)
    counts = (words & np.uint64(MOST - 1)).astype(np.int64) + 1
    return keys[starts], np.add.reduceat(counts, starts) if len(starts) else counts


def _words(keys: Words, counts: Ints) -> Words:
    """Sorted words of ascending keys; what is more than a word can count stands in several."""
    if counts.max(initial=0) > MOST:
        pieces = -(-counts // MOST)
        last = np.cumsum(pieces) - 1
        sizes = np.full(int(pieces.sum()), MOST)
        sizes[last] = counts - (pieces - 1) * MOST
        return np.sort(_words(np.repeat(keys, pieces), sizes))
    return (keys << np.uint64(COUNT_BITS)) | (counts - 1).astype(np.uint64)


def _most_frequent_first(experts: Ints, counts: Ints) -> Ints:
    """The order by expert, then count from the largest, then place; fewer than 2**21 rows of 2**17 experts."""
    clipped = np.minimum(counts, (1 << _RANKED_COUNT_BITS) - 1)
    falling = (1 << _RANKED_COUNT_BITS) - 1 - clipped
    keys = (((experts << _RANKED_COUNT_BITS) | falling) << _PLACE_BITS) | np.arange(len(counts))
    keys.sort()
    places: Ints = keys & ((1 << _PLACE_BITS) - 1)
    return places
