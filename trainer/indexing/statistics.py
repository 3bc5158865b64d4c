"""Running statistics of every expert, exact after any number of batches, in memory that does not grow with the text.

A histogram covers [0, 2^e) with the smallest e that holds the expert's largest coefficient. When a larger one comes,
the range doubles and neighbouring bins are added together, so the counts are always what one pass with the final
range would have given.

Shapes: N experts, B bins, P active (token, expert) pairs of a batch.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BINS = 64
INTERVALS = 8
"""Equal parts of [0, 2^e) from which contexts are kept at random; each is a whole number of bins."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Pairs(NamedTuple):
    """Every (token, expert) pair of a batch with a coefficient above 0, each field [P]."""

    expert: Ints
    sequence: Ints
    position: Ints
    token: Ints
    coefficient: Floats


class Statistics:
    """Counts, sums, maxima and histograms per expert."""

    def __init__(self, num_experts: int) -> None:
        self.active_tokens: Ints = np.zeros(num_experts, np.int64)
        self.sums: Floats = np.zeros(num_experts)
        self.largest: Floats = np.zeros(num_experts)
        self.histogram_NB: Ints = np.zeros((num_experts, BINS), np.int64)
        self.exponents: Ints = np.full(num_experts, np.iinfo(np.int32).min, np.int64)

    def add(self, pairs: Pairs) -> dict[int, Ints]:
        """Count a batch. Returns how ranges grew: doublings -> experts, for those that had been active before."""
        num_experts = len(self.active_tokens)
        np.maximum.at(self.largest, pairs.expert, pairs.coefficient)
        grown = self._widen()
        self.active_tokens += np.bincount(pairs.expert, minlength=num_experts)
        self.sums += np.bincount(pairs.expert, pairs.coefficient, minlength=num_experts)
        flat = pairs.expert * BINS + self.bins(pairs)
        self.histogram_NB += np.bincount(flat, minlength=num_experts * BINS).reshape(num_experts, BINS)
        return grown

    def bins(self, pairs: Pairs) -> Ints:
        """The bin of each pair, [P], under the present ranges."""
        # Scaling by a power of two is exact, so a coefficient never lands on the wrong side of an edge.
        scaled = np.ldexp(pairs.coefficient, (6 - self.exponents[pairs.expert]).astype(np.int32))
        return scaled.astype(np.int64)

    def intervals(self, pairs: Pairs) -> Ints:
        """The interval of each pair, [P], from 0 (lowest) to INTERVALS - 1."""
        return self.bins(pairs) // (BINS // INTERVALS)

    @property
    def highs(self) -> Floats:
        """[N]: the upper end of each expert's range; 0 for one that was never active."""
        return np.where(self.active_tokens > 0, np.ldexp(1.0, np.maximum(self.exponents, -1000).astype(np.int32)), 0.0)

    @property
    def means(self) -> Floats:
        """[N]: mean coefficient where active; 0 for one that was never active."""
        return self.sums / np.maximum(self.active_tokens, 1)

    def percentiles(self, share: float) -> Floats:
        """[N]: the upper edge of the bin that holds this share of an expert's coefficients, at most its largest."""
        cumulative = self.histogram_NB.cumsum(axis=1)
        reached = (cumulative >= share * self.active_tokens[:, None]).argmax(axis=1)
        percentiles: Floats = np.minimum((reached + 1) * self.highs / BINS, self.largest)
        return percentiles

    def _widen(self) -> dict[int, Ints]:
        exponents = np.where(self.largest > 0, np.frexp(self.largest)[1], self.exponents)
        known = self.active_tokens > 0
        growth = np.where(known, exponents - self.exponents, 0)
        self.exponents = exponents
        grown = {int(step): np.flatnonzero(growth == step) for step in np.unique(growth[growth > 0])}
        for step, experts in grown.items():
            self.histogram_NB[experts] = _coarsen(self.histogram_NB[experts], step)
        return grown


def _coarsen(histogram_NB: Ints, doublings: int) -> Ints:
    targets = np.arange(BINS) >> min(doublings, 6)
    coarse = np.zeros_like(histogram_NB)
    np.add.at(coarse.T, targets, histogram_NB.T)
    return coarse


class TokenCounts:
    """How often each expert is active on each token of the vocabulary, kept sparse."""

    def __init__(self, num_experts: int, vocabulary: int, limit: int = 4_000_000) -> None:
        """``limit`` is how many entries are held before equal ones are added together."""
        self.num_experts = num_experts
        self.vocabulary = vocabulary
        self._keys: list[Ints] = []
        self._counts: list[Ints] = []
        self._held = 0
        self._limit = limit

    def add(self, pairs: Pairs) -> None:
        """Count a batch."""
        keys, counts = np.unique(pairs.expert * self.vocabulary + pairs.token, return_counts=True)
        self._keys.append(keys)
        self._counts.append(counts)
        self._held += len(keys)
        if self._held > self._limit:
            self._merge()
            self._limit = max(self._limit, 2 * self._held)

    def _merge(self) -> tuple[Ints, Ints]:
        keys = np.concatenate([np.zeros(0, np.int64), *self._keys])
        unique, places = np.unique(keys, return_inverse=True)
        counts = np.bincount(places, np.concatenate([np.zeros(0), *self._counts]), len(unique)).astype(np.int64)
        self._keys, self._counts, self._held = [unique], [counts], len(unique)
        return unique, counts

    def summary(self, top: int) -> tuple[list[list[list[int]]], Floats]:
        """For each expert its ``top`` most frequent [token, count] pairs, and the entropy of its tokens in bits [N]."""
        keys, counts = self._merge()
        experts, tokens = np.divmod(keys, self.vocabulary)
        totals = np.bincount(experts, counts, self.num_experts)
        shares = counts / totals[experts]
        entropy = np.bincount(experts, -shares * np.log2(shares), self.num_experts)
        order = np.lexsort((tokens, -counts, experts))
        ends = np.searchsorted(experts[order], np.arange(self.num_experts + 1))
        tops = [
            np.stack([tokens[chosen], counts[chosen]], axis=1).tolist()
            for chosen in (order[start : min(start + top, end)] for start, end in pairwise(ends.tolist()))
        ]
        return tops, np.maximum(entropy, 0.0)
