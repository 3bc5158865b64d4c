"""Exact running statistics of every expert, in memory that does not grow with the text.

An expert's histogram covers [0, 2^e). e is the smallest exponent whose range holds the expert's largest coefficient.
When a larger coefficient arrives, the range doubles and neighbouring bins are summed. The counts are therefore those of
a single pass with the final range, and the counts of two parts of a text can be added.

The largest coefficients of each expert are kept too, because one unit of steering is their 99th percentile.

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
TAIL_SHARE = 0.04
"""Share of an expert's active tokens whose coefficients are kept, largest first."""
MIN_TAIL, ALL_TAILS = 256, 1 << 25
"""Coefficients kept at least per expert, and at most for all experts together."""
PENDING = 1 << 20
"""Coefficients that are collected before they are sorted."""


class ExpertStatistics:
    """Active tokens, coefficient sums, maxima and histograms of every expert."""

    def __init__(self, num_experts: int) -> None:
        self.active_tokens: Ints = np.zeros(num_experts, np.int64)
        self.sums: Floats = np.zeros(num_experts)
        self.largest: NDArray[np.float32] = np.zeros(num_experts, np.float32)
        self.histogram_NB: Ints = np.zeros((num_experts, HISTOGRAM_BINS), np.int64)
        self.exponents: NDArray[np.int32] = np.full(num_experts, INACTIVE_EXPONENT, np.int32)
        self.tails = Tails(num_experts)

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
        self.tails.add(pairs.expert, pairs.coefficient, self.active_tokens)
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
        self.tails.merge(other.tails)

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
        """Upper percentile of each expert's coefficient over its active tokens, [N]: the smallest coefficient that at
        least ``share`` of them do not exceed.

        It is exact up to ``100 * max(MIN_TAIL, ALL_TAILS / N)`` active tokens per expert, which is 800,000 for 4,096
        experts, unless a text becomes much weaker towards its end. Beyond that, it is the upper edge of the histogram
        bin that contains it, clipped to the largest coefficient.
        """
        cumulative = self.histogram_NB.cumsum(axis=1)
        reached = (cumulative >= share * self.active_tokens[:, None]).argmax(axis=1)
        edges: Floats = np.minimum((reached + 1) * self.highs / HISTOGRAM_BINS, self.largest.astype(np.float64))
        exact = self.tails.percentiles(share, self.active_tokens)
        return np.where(np.isnan(exact), edges, exact)

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


class Tails:
    """The largest coefficients of every expert, and the largest of those that were dropped."""

    def __init__(self, num_experts: int) -> None:
        self.expert: NDArray[np.int32] = np.zeros(0, np.int32)
        self.value: NDArray[np.float32] = np.zeros(0, np.float32)
        self.dropped: NDArray[np.float32] = np.zeros(num_experts, np.float32)
        self._capacity = max(MIN_TAIL, ALL_TAILS // num_experts)
        self._pending: list[tuple[NDArray[np.int32], NDArray[np.float32]]] = []
        self._num_pending = 0

    def add(self, expert_P: NDArray[np.int32], value_P: NDArray[np.float32], active_N: Ints) -> None:
        """Add the coefficients of some pairs; ``active_N`` counts the active tokens with them."""
        kept = value_P > self.dropped[expert_P]
        self._pending.append((expert_P[kept], value_P[kept]))
        self._num_pending += int(kept.sum())
        if self._num_pending > max(PENDING, len(self.value)):
            self._sort(active_N)

    def merge(self, other: Tails) -> None:
        """Add the coefficients of another part of the text."""
        self._pending += [*other._pending, (other.expert, other.value)]
        self.dropped = np.maximum(self.dropped, other.dropped)

    def arrays(self, active_N: Ints) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
        """Experts, coefficients and the largest dropped coefficients, for another process."""
        self._sort(active_N)
        return self.expert, self.value, self.dropped

    def percentiles(self, share: float, active_N: Ints) -> Floats:
        """Percentile of each expert, [N]; NaN where coefficients that it may depend on were dropped, and 0 if dead."""
        self._sort(active_N)
        found_N = np.zeros(len(active_N))
        experts = np.flatnonzero(active_N)
        place_R = active_N[experts] - np.ceil(share * active_N[experts] - 1e-9).astype(np.int64)
        start_R, end_R = (np.searchsorted(self.expert, experts, side=side) for side in ("left", "right"))
        is_kept_R = place_R < end_R - start_R
        found_N[experts[~is_kept_R]] = np.nan
        found_N[experts[is_kept_R]] = self.value[(start_R + place_R)[is_kept_R]]
        found_N[found_N < self.dropped] = np.nan
        return found_N

    def _sort(self, active_N: Ints) -> None:
        """Sort by expert, largest coefficient first, and drop the small ones."""
        parts = [(self.expert, self.value), *self._pending]
        expert_P, value_P = (np.concatenate(values) for values in zip(*parts, strict=True))
        order_P = np.lexsort((-value_P, expert_P))
        expert_P, value_P = expert_P[order_P], value_P[order_P]
        rank_P = np.arange(len(expert_P)) - np.searchsorted(expert_P, expert_P)
        room_N = np.minimum(self._capacity, np.maximum(MIN_TAIL, TAIL_SHARE * active_N)).astype(np.int64)
        kept_P = rank_P < room_N[expert_P]
        np.maximum.at(self.dropped, expert_P[~kept_P], value_P[~kept_P])
        self.expert, self.value = expert_P[kept_P], value_P[kept_P]
        self._pending, self._num_pending = [], 0


def _coarsen(histogram_NB: Ints, doublings: int) -> Ints:
    targets = np.arange(HISTOGRAM_BINS) >> min(doublings, 6)
    coarse = np.zeros_like(histogram_NB)
    np.add.at(coarse.T, targets, histogram_NB.T)
    return coarse
