"""Exact running statistics of every expert, in memory that does not grow with the text.

An expert's histogram covers [0, 2^e). e is the smallest exponent whose range holds the expert's largest coefficient.
When a larger coefficient arrives, the range doubles and neighbouring bins are summed. The counts are therefore those of
a single pass with the final range, and the counts of two parts of a text can be added.

Shapes: N experts, B histogram bins, P active (token, expert) pairs of a batch, R experts active in the batch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mxd.trainer.analysis.indexing.activations import ActivePairs, Floats, Ints, group_lengths, group_starts

HISTOGRAM_BINS = 64
ACTIVATION_BINS = 8
"""Equal parts of [0, 2^e) from which random examples are drawn. Each spans a whole number of histogram bins."""
INACTIVE_EXPONENT = -1000
"""Exponent of an expert that has not been active. It is below that of any float32."""


class ExpertStatistics:
    """Active tokens, coefficient sums, maxima and histograms of every expert."""

    def __init__(self, num_experts: int) -> None:
        self.active_tokens: Ints = np.zeros(num_experts, np.int64)
        self.sums: Floats = np.zeros(num_experts)
        self.largest: NDArray[np.float32] = np.zeros(num_experts, np.float32)
        self.histogram_NB: Ints = np.zeros((num_experts, HISTOGRAM_BINS), np.int64)
        self.exponents: NDArray[np.int32] = np.full(num_experts, INACTIVE_EXPONENT, np.int32)

    def add(self, pairs: ActivePairs) -> dict[int, Ints]:
        """Count a batch.

        Returns:
            The previously active experts whose range grew, by the number of doublings.
        """
        if not len(pairs.expert):
            return {}
        starts_R = group_starts(pairs.expert)
        experts_R = pairs.expert[starts_R]
        widened = self._widen(experts_R, np.maximum.reduceat(pairs.coefficient, starts_R))
        self.active_tokens[experts_R] += group_lengths(starts_R, len(pairs.expert))
        self.sums[experts_R] += np.add.reduceat(pairs.coefficient, starts_R, dtype=np.float64)
        np.add.at(
            self.histogram_NB.reshape(-1),
            pairs.expert.astype(np.int64) * HISTOGRAM_BINS + self.histogram_bins(pairs),
            1,
        )
        return widened

    def merge(self, other: ExpertStatistics) -> None:
        """Add the statistics of another part of the text."""
        active = np.flatnonzero(other.active_tokens)
        self._widen(active, other.largest[active])
        lag_N = np.maximum(self.exponents - other.exponents, 0)
        for steps in np.unique(lag_N[active]).tolist():
            experts = active[lag_N[active] == steps]
            self.histogram_NB[experts] += _coarsen(other.histogram_NB[experts], steps)
        self.active_tokens += other.active_tokens
        self.sums += other.sums

    def histogram_bins(self, pairs: ActivePairs) -> NDArray[np.int32]:
        """Histogram bin of each pair, [P], under the current ranges."""
        # Scaling by a power of two is exact, so no coefficient crosses a bin edge by rounding.
        scale_N = np.ldexp(float(HISTOGRAM_BINS), -self.exponents)
        return (pairs.coefficient * scale_N[pairs.expert]).astype(np.int32)

    def activation_bins(self, pairs: ActivePairs) -> NDArray[np.int32]:
        """Activation bin of each pair, [P], from 0 (lowest) to ACTIVATION_BINS - 1."""
        return self.histogram_bins(pairs) // (HISTOGRAM_BINS // ACTIVATION_BINS)

    @property
    def highs(self) -> Floats:
        """Upper end of each expert's histogram range, [N]. 0 for dead experts."""
        return np.where(self.active_tokens > 0, np.ldexp(1.0, self.exponents), 0.0)

    @property
    def means(self) -> Floats:
        """Mean coefficient over the expert's active tokens, [N]. 0 for dead experts.

        The float32 rounding makes the result independent of the order of summation.
        """
        return (self.sums / np.maximum(self.active_tokens, 1)).astype(np.float32).astype(np.float64)

    def percentiles(self, share: float) -> Floats:
        """Approximate percentile of each expert's coefficient, [N].

        This is the upper edge of the histogram bin that contains the percentile, clipped to the largest coefficient.
        """
        cumulative = self.histogram_NB.cumsum(axis=1)
        reached = (cumulative >= share * self.active_tokens[:, None]).argmax(axis=1)
        percentiles: Floats = np.minimum((reached + 1) * self.highs / HISTOGRAM_BINS, self.largest.astype(np.float64))
        return percentiles

    def _widen(self, experts_R: NDArray[np.integer], largest_R: NDArray[np.float32]) -> dict[int, Ints]:
        larger = largest_R > self.largest[experts_R]
        experts, largest = experts_R[larger], largest_R[larger]
        before, after = self.exponents[experts], np.frexp(largest)[1]
        self.largest[experts], self.exponents[experts] = largest, after
        growth = np.where(before == INACTIVE_EXPONENT, 0, after - before)
        widened = {int(step): experts[growth == step].astype(np.int64) for step in np.unique(growth[growth > 0])}
        for doublings, widened_E in widened.items():
            self.histogram_NB[widened_E] = _coarsen(self.histogram_NB[widened_E], doublings)
        return widened


def _coarsen(histogram_NB: Ints, doublings: int) -> Ints:
    targets = np.arange(HISTOGRAM_BINS) >> min(doublings, 6)
    coarse = np.zeros_like(histogram_NB)
    np.add.at(coarse.T, targets, histogram_NB.T)
    return coarse
