"""A sample of whole sequences with all that is active in them: what contexts alone cannot tell.

Contexts say where an expert is active, not where it is silent, nor what else was active then. A few thousand whole
sequences do: labels are tested on them, and which experts go together is counted in them. Which sequences are kept
depends on the seed and their place in the text alone, so two runs indexed on one text keep the same ones.

Shapes: P active pairs, L tokens of a sequence.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.indexing.pairs import Ints, Pairs

SAMPLE_TOKENS = 131_072
"""Tokens of the sample: the room it takes does not grow with the text, nor with the number of experts."""


def sequence_key(seed: int, sequence: int) -> int:
    """A number that depends on seed and sequence alone (splitmix64); the sequences with the smallest are kept."""
    state = (seed * 0x9E3779B97F4A7C15 + sequence + 0x632BE59BD9B4E019) & 0xFFFFFFFFFFFFFFFF
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return state ^ (state >> 31)


class RoutedSample:
    """Whole sequences and every expert that is active on each of their tokens."""

    def __init__(self, seed: int, context: int, tokens: int = SAMPLE_TOKENS) -> None:
        """``tokens`` is room for that many, in sequences of ``context`` tokens, at least one."""
        self.seed = seed
        self.room = max(1, tokens // context)
        self._heap: list[tuple[int, int]] = []
        """(-key, sequence): the kept sequence with the largest key is first, and goes first."""
        self._routed: dict[int, tuple[Ints, Ints]] = {}
        self.token_ids: dict[int, NDArray[np.uint32]] = {}

    def add(self, pairs: Pairs, token_ids_SL: NDArray[np.integer], numbers_S: Ints) -> None:
        """Offer whole sequences, whose active pairs are all in ``pairs``."""
        length, first = token_ids_SL.shape[1], int(numbers_S[0])
        for sequence in self._chosen(numbers_S.tolist()):
            self.token_ids[sequence] = token_ids_SL[sequence - first].astype(np.uint32)
            here = pairs.sequence == sequence
            position, expert = pairs.position[here], pairs.expert[here]
            order = np.lexsort((-pairs.coefficient[here], position))
            self._routed[sequence] = (np.bincount(position, minlength=length), expert[order].astype(np.int64))

    def _chosen(self, sequences: Sequence[int]) -> list[int]:
        """Those of ``sequences`` that stay; what they push out is forgotten."""
        for sequence in sequences:
            entry = (-sequence_key(self.seed, sequence), sequence)
            if len(self._heap) < self.room:
                heapq.heappush(self._heap, entry)
            else:
                _, gone = heapq.heappushpop(self._heap, entry)
                self._routed.pop(gone, None)
                self.token_ids.pop(gone, None)
        kept = {sequence for _, sequence in self._heap}
        return [sequence for sequence in sequences if sequence in kept]

    def flat(self) -> list[NDArray[Any]]:
        """All that is kept, for another process: numbers, counts, experts and token ids, one sequence after another."""
        numbers = self.sequences
        return [
            np.array(numbers, np.int64),
            np.concatenate([np.zeros(0, np.int64), *(self._routed[number][0] for number in numbers)]),
            np.concatenate([np.zeros(0, np.int64), *(self._routed[number][1] for number in numbers)]),
            np.concatenate([np.zeros(0, np.uint32), *(self.token_ids[number] for number in numbers)]),
        ]

    def join(self, numbers: Ints, counts: Ints, experts: Ints, token_ids: NDArray[np.uint32]) -> None:
        """Offer what another process has kept, as ``flat`` gave it."""
        if not len(numbers):
            return
        rows = counts.reshape(len(numbers), -1)
        ends = np.concatenate([[0], rows.sum(axis=1).cumsum()])
        chosen = set(self._chosen(numbers.tolist()))
        for place, number in enumerate(numbers.tolist()):
            if number in chosen:
                self._routed[number] = (rows[place], experts[ends[place] : ends[place + 1]])
                self.token_ids[number] = token_ids.reshape(len(numbers), -1)[place]

    @property
    def sequences(self) -> list[int]:
        """The kept ones, in order."""
        return sorted(self._routed)

    def routed(self, sequence: int) -> tuple[Ints, Ints]:
        """How many experts are active on each token, [L], and which, [P], token by token, the strongest first."""
        return self._routed[sequence]
