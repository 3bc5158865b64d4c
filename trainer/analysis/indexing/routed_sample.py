"""Random sample of whole sequences with the complete routing of every token.

Top examples do not show where an expert is inactive, nor which other experts are active on the same token. The sample
does: labels are tested on it, and co-activations are counted in it. The choice depends only on the seed and on the
sequence's index in the text, so two runs indexed on the same text sample the same sequences.

Shapes: P active pairs, L tokens of a sequence.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxd.trainer.analysis.indexing.activations import ActivePairs, Ints

SAMPLE_TOKENS = 131_072
"""Size of the sample in tokens. Its memory grows neither with the text nor with the number of experts."""


def sequence_key(seed: int, sequence: int) -> int:
    """Pseudo-random key of a sequence (splitmix64). The sequences with the smallest keys are sampled."""
    state = (seed * 0x9E3779B97F4A7C15 + sequence + 0x632BE59BD9B4E019) & 0xFFFFFFFFFFFFFFFF
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return state ^ (state >> 31)


class RoutedSample:
    """Sampled sequences with the experts active on each of their tokens."""

    def __init__(self, seed: int, context_length: int, tokens: int = SAMPLE_TOKENS) -> None:
        """Sample at most ``tokens`` tokens in sequences of ``context_length``, and at least one sequence."""
        self.seed = seed
        self.capacity = max(1, tokens // context_length)
        self._heap: list[tuple[int, int]] = []
        """Entries (-key, sequence). The sampled sequence with the largest key is at the top and evicted first."""
        self._routed: dict[int, tuple[Ints, Ints]] = {}
        self.token_ids: dict[int, NDArray[np.uint32]] = {}

    def add(self, pairs: ActivePairs, token_ids_SL: NDArray[np.integer], numbers_S: Ints) -> None:
        """Consider whole sequences for the sample. ``pairs`` must contain all their active pairs."""
        length, first = token_ids_SL.shape[1], int(numbers_S[0])
        for sequence in self._admit(numbers_S.tolist()):
            self.token_ids[sequence] = token_ids_SL[sequence - first].astype(np.uint32)
            here = pairs.sequence == sequence
            position, expert = pairs.position[here], pairs.expert[here]
            order = np.lexsort((-pairs.coefficient[here], position))
            self._routed[sequence] = (np.bincount(position, minlength=length), expert[order].astype(np.int64))

    def _admit(self, sequences: Sequence[int]) -> list[int]:
        """Admit sequences to the sample and evict others. Returns the admitted ones."""
        for sequence in sequences:
            entry = (-sequence_key(self.seed, sequence), sequence)
            if len(self._heap) < self.capacity:
                heapq.heappush(self._heap, entry)
            else:
                _, evicted = heapq.heappushpop(self._heap, entry)
                self._routed.pop(evicted, None)
                self.token_ids.pop(evicted, None)
        sampled = {sequence for _, sequence in self._heap}
        return [sequence for sequence in sequences if sequence in sampled]

    def to_arrays(self) -> list[NDArray[Any]]:
        """Serialise the sample for another process: sequence indices, counts, experts and token ids, concatenated."""
        numbers = self.sequences
        return [
            np.array(numbers, np.int64),
            np.concatenate([np.zeros(0, np.int64), *(self._routed[number][0] for number in numbers)]),
            np.concatenate([np.zeros(0, np.int64), *(self._routed[number][1] for number in numbers)]),
            np.concatenate([np.zeros(0, np.uint32), *(self.token_ids[number] for number in numbers)]),
        ]

    def merge_arrays(self, numbers: Ints, counts: Ints, experts: Ints, token_ids: NDArray[np.uint32]) -> None:
        """Merge the sample of another process, as returned by ``to_arrays``."""
        if not len(numbers):
            return
        rows = counts.reshape(len(numbers), -1)
        ends = np.concatenate([[0], rows.sum(axis=1).cumsum()])
        chosen = set(self._admit(numbers.tolist()))
        for row, number in enumerate(numbers.tolist()):
            if number in chosen:
                self._routed[number] = (rows[row], experts[ends[row] : ends[row + 1]])
                self.token_ids[number] = token_ids.reshape(len(numbers), -1)[row]

    @property
    def sequences(self) -> list[int]:
        """Indices of the sampled sequences, ascending."""
        return sorted(self._routed)

    def active_experts(self, sequence: int) -> tuple[Ints, Ints]:
        """Number of active experts of each token, [L], and their ids, [P], token by token, strongest first."""
        return self._routed[sequence]
