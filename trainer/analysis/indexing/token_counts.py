"""Exact counts of the vocabulary tokens on which each expert is active, in memory that does not grow with the text.

This is an external merge sort. A run is a sorted array of 64-bit words: the (expert, token) key in the high bits, the
count in the low bits. Sorting, merging and summing are therefore sorts of plain integers. Full buffers are written to
an unnamed temporary file, which the operating system deletes with the process. Chunks of experts are then merged.

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

from mxd.trainer.analysis.indexing.activations import ActivePairs, Floats, Ints, group_lengths, group_starts

Words = NDArray[np.uint64]

COUNT_BITS = 24
MAX_COUNT = 1 << COUNT_BITS
"""Largest count per word. Larger counts are split over several words."""
MAX_RUNS = 32
"""Runs in the file before they are merged into one."""
WORDS_PER_CHUNK = 1 << 20
_RANKED_COUNT_BITS = 25
_RANKED_EXPERTS = 1 << 17
_INDEX_BITS = 21


class TokenSummary(NamedTuple):
    """Token statistics of consecutive experts."""

    first: int
    """Index of the first expert."""
    top_tokens: list[list[list[int]]]
    """Most frequent [token id, count] pairs of each expert."""
    entropy: Floats
    """Entropy of each expert's active-token distribution, in bits."""


class TokenCounts:
    """Counts of (expert, vocabulary token) pairs."""

    def __init__(self, num_experts: int, vocabulary: int, folder: Path, buffer_size: int = 1 << 21) -> None:
        """Buffer ``buffer_size`` pairs in memory and write the rest to an unnamed file in ``folder``."""
        self.num_experts = num_experts
        self.vocabulary = vocabulary
        # 32-bit keys sort in half the time.
        narrow = num_experts * vocabulary <= 1 << 32
        self._buffer = np.empty(buffer_size, np.uint32 if narrow else np.uint64)
        self._buffered = 0
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._runs: list[tuple[int, int]] = []
        """Offset and length (words) of each run in the file."""

    def add(self, pairs: ActivePairs, tokens_P: Ints) -> None:
        """Count a batch. ``tokens_P`` are the token ids of the pairs."""
        keys_P = pairs.expert.astype(np.int64) * self.vocabulary + tokens_P
        while len(keys_P):
            fits = min(len(keys_P), len(self._buffer) - self._buffered)
            self._buffer[self._buffered : self._buffered + fits] = keys_P[:fits]
            self._buffered += fits
            keys_P = keys_P[fits:]
            if self._buffered == len(self._buffer):
                self.add_run(self._drain_buffer())

    def add_run(self, words: Words) -> None:
        """Add a run of sorted words, such as one yielded by another object's ``chunks``."""
        if len(words):
            self._append(words)
        if len(self._runs) > MAX_RUNS:
            self._merge_runs()

    def chunks(self) -> Iterator[tuple[int, int, Words]]:
        """Yield all counts, summed, in chunks of bounded size: (first expert, end expert, sorted words)."""
        if self._buffered:
            self.add_run(self._drain_buffer())
        runs = [self._read(*location) for location in self._runs]
        bounds_N1 = np.arange(self.num_experts + 1, dtype=np.uint64) * np.uint64(self.vocabulary)
        bounds_RN1 = [np.searchsorted(run, bounds_N1 << np.uint64(COUNT_BITS)) for run in runs]
        rows_N1 = np.sum([np.zeros(self.num_experts + 1, np.int64), *bounds_RN1], axis=0)
        first = 0
        while first < self.num_experts:
            fits = int(np.searchsorted(rows_N1, rows_N1[first] + WORDS_PER_CHUNK, side="right")) - 1
            end = min(max(fits, first + 1), first + _RANKED_EXPERTS, self.num_experts)
            parts = [run[bounds[first] : bounds[end]] for run, bounds in zip(runs, bounds_RN1, strict=True)]
            words = np.concatenate([np.zeros(0, np.uint64), *parts])
            words.sort()
            yield first, end, _encode_words(*_sum_words(words))
            first = end

    def summaries(self, top: int) -> Iterator[TokenSummary]:
        """Yield the ``top`` most frequent tokens and the token entropy of every expert, in order."""
        for first, end, words in self.chunks():
            keys, counts = _sum_words(words)
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
        """Close the temporary file, which deletes it."""
        if self._file is not None:
            self._file.close()

    def _drain_buffer(self) -> Words:
        keys = self._buffer[: self._buffered]
        keys.sort()
        starts = group_starts(keys)
        words = _encode_words(keys[starts].astype(np.uint64), group_lengths(starts, len(keys)))
        self._buffered = 0
        return words

    def _append(self, words: Words) -> None:
        # An unnamed file leaves nothing behind, however the process ends.
        self._file = self._file or tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  # see close
        start = self._file.seek(0, os.SEEK_END) // words.itemsize
        words.tofile(self._file)
        self._file.flush()
        self._runs.append((start, len(words)))

    def _read(self, start: int, length: int) -> Words:
        assert self._file is not None
        return np.memmap(self._file, np.uint64, "r", start * 8, (length,))

    def _merge_runs(self) -> None:
        merged = TokenCounts(self.num_experts, self.vocabulary, self._folder, buffer_size=1)
        total = 0
        for _, _, words in self.chunks():
            merged._append(words)
            total += len(words)
        self.close()
        # The chunks are contiguous and in order, so they form one run.
        self._file, self._runs = merged._file, [(0, total)]


def _sum_words(words: Words) -> tuple[Words, Ints]:
    """Decode sorted words to unique keys and their total counts."""
    keys = words >> np.uint64(COUNT_BITS)
    starts = group_starts(keys)
    counts = (words & np.uint64(MAX_COUNT - 1)).astype(np.int64) + 1
    return keys[starts], np.add.reduceat(counts, starts) if len(starts) else counts


def _encode_words(keys: Words, counts: Ints) -> Words:
    """Encode ascending keys and their counts as sorted words."""
    if counts.max(initial=0) > MAX_COUNT:
        pieces = -(-counts // MAX_COUNT)
        last = np.cumsum(pieces) - 1
        sizes = np.full(int(pieces.sum()), MAX_COUNT)
        sizes[last] = counts - (pieces - 1) * MAX_COUNT
        return np.sort(_encode_words(np.repeat(keys, pieces), sizes))
    return (keys << np.uint64(COUNT_BITS)) | (counts - 1).astype(np.uint64)


def _most_frequent_first(experts: Ints, counts: Ints) -> Ints:
    """Argsort by expert, then by descending count, then by index; at most 2**21 rows of 2**17 experts."""
    clipped = np.minimum(counts, (1 << _RANKED_COUNT_BITS) - 1)
    falling = (1 << _RANKED_COUNT_BITS) - 1 - clipped
    keys = (((experts << _RANKED_COUNT_BITS) | falling) << _INDEX_BITS) | np.arange(len(counts))
    keys.sort()
    indices: Ints = keys & ((1 << _INDEX_BITS) - 1)
    return indices
