"""Running statistics of every expert, exact after any number of batches, in memory that does not grow with the text.

A histogram covers [0, 2^e) with the smallest e that holds the expert's largest coefficient. When a larger one comes,
the range doubles and neighbouring bins are added together, so the counts are always what one pass with the final
range would have given, and those of two parts of a text can be added.

Shapes: N experts, B bins, P active (token, expert) pairs of a batch, R runs of pairs of one expert.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainer.indexing.pairs import Floats, Ints, Pairs, run_lengths, run_starts

BINS = 64
INTERVALS = 8
"""Equal parts of [0, 2^e) from which contexts are kept at random; each is a whole number of bins."""
NEVER = -1000
"""Exponent of an expert that has not been active: below that of any float32."""


class Statistics:
    """Counts, sums, maxima and histograms per expert."""

    def __init__(self, num_experts: int) -> None:
        self.active_tokens: Ints = np.zeros(num_experts, np.int64)
        self.sums: Floats = np.zeros(num_experts)
        self.largest: NDArray[np.float32] = np.zeros(num_experts, np.float32)
        self.histogram_NB: Ints = np.zeros((num_experts, BINS), np.int64)
        self.exponents: NDArray[np.int32] = np.full(num_experts, NEVER, np.int32)

    def add(self, pairs: Pairs) -> dict[int, Ints]:
        """Count a batch. Returns how ranges grew: doublings -> experts, for those that had been active before."""
        if not len(pairs.expert):
            return {}
        starts_R = run_starts(pairs.expert)
        experts_R = pairs.expert[starts_R]
        grown = self._widen(experts_R, np.maximum.reduceat(pairs.coefficient, starts_R))
        self.active_tokens[experts_R] += run_lengths(starts_R, len(pairs.expert))
        self.sums[experts_R] += np.add.reduceat(pairs.coefficient, starts_R, dtype=np.float64)
        np.add.at(self.histogram_NB.reshape(-1), pairs.expert.astype(np.int64) * BINS + self.bins(pairs), 1)
        return grown

    def merge(self, other: Statistics) -> None:
        """Add what was counted on another part of the text."""
        active = np.flatnonzero(other.active_tokens)
        self._widen(active, other.largest[active])
        behind = np.maximum(self.exponents - other.exponents, 0)
        for doublings in np.unique(behind[active]).tolist():
            experts = active[behind[active] == doublings]
            self.histogram_NB[experts] += _coarsen(other.histogram_NB[experts], doublings)
        self.active_tokens += other.active_tokens
        self.sums += other.sums

    def bins(self, pairs: Pairs) -> NDArray[np.int32]:
        """The bin of each pair, [P], under the present ranges."""
        # Scaling by a power of two is exact, so a coefficient never lands on the wrong side of an edge.
        scale_N = np.ldexp(float(BINS), -self.exponents)
        return (pairs.coefficient * scale_N[pairs.expert]).astype(np.int32)

    def intervals(self, pairs: Pairs) -> NDArray[np.int32]:
        """The interval of each pair, [P], from 0 (lowest) to INTERVALS - 1."""
        return self.bins(pairs) // (BINS // INTERVALS)

    @property
    def highs(self) -> Floats:
        """[N]: the upper end of each expert's range; 0 for one that was never active."""
        return np.where(self.active_tokens > 0, np.ldexp(1.0, self.exponents), 0.0)

    @property
    def means(self) -> Floats:
        """[N]: mean coefficient where active; 0 for one that was never active.

        Rounded to float32, which the coefficients are: so it does not depend on the order in which parts were added.
        """
        return (self.sums / np.maximum(self.active_tokens, 1)).astype(np.float32).astype(np.float64)

    def percentiles(self, share: float) -> Floats:
        """[N]: the upper edge of the bin that holds this share of an expert's coefficients, at most its largest."""
        cumulative = self.histogram_NB.cumsum(axis=1)
        reached = (cumulative >= share * self.active_tokens[:, None]).argmax(axis=1)
        percentiles: Floats = np.minimum((reached + 1) * self.highs / BINS, self.largest.astype(np.float64))
        return percentiles

    def _widen(self, experts_R: NDArray[np.integer], largest_R: NDArray[np.float32]) -> dict[int, Ints]:
        larger = largest_R > self.largest[experts_R]
        experts, largest = experts_R[larger], largest_R[larger]
        before, after = self.exponents[experts], np.frexp(largest)[1]
        self.largest[experts], self.exponents[experts] = largest, after
        growth = np.where(before == NEVER, 0, after - before)
        grown = {int(step): experts[growth == step].astype(np.int64) for step in np.unique(growth[growth > 0])}
        for step, widened in grown.items():
            self.histogram_NB[widened] = _coarsen(self.histogram_NB[widened], step)
        return grown


def _coarsen(histogram_NB: Ints, doublings: int) -> Ints:
    targets = np.arange(BINS) >> min(doublings, 6)
    coarse = np.zeros_like(histogram_NB)
    np.add.at(coarse.T, targets, histogram_NB.T)
    return coarse
