"""95 % bootstrap intervals over sequences, and over seeds.

Sequences are drawn with replacement, all arms of a sequence together, so differences are paired. Over seeds, seeds are
drawn first and sequences then (the same for all seeds): with two or three seeds such an interval is coarse, and it is
what there is.

Shapes: B resamples, S sequences, R seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
LEVELS = (2.5, 97.5)


@dataclass(frozen=True)
class Interval:
    """A measured value, and where 95 % of the resamples lie."""

    value: float
    low: float
    high: float


class Bootstrap:
    """The same resamples for everything that is measured on the same sequences."""

    def __init__(self, sequences: int, resamples: int, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        share_S = np.full(sequences, 1 / sequences)
        self._weights_BS: Floats = self._generator.multinomial(sequences, share_S, size=resamples) / sequences

    def mean(self, values_S: Floats) -> Interval:
        """Of the mean."""
        return _interval(float(values_S.mean()), self._weights_BS @ values_S)

    def ratio(self, above_S: Floats, below_S: Floats) -> Interval:
        """Of a ratio of two means; not a number where the lower one is zero."""
        with np.errstate(divide="ignore", invalid="ignore"):
            values_B = (self._weights_BS @ above_S) / (self._weights_BS @ below_S)
            value = above_S.mean() / below_S.mean()
        return _interval(float(value), values_B)

    def mean_over_seeds(self, values_RS: Sequence[Floats]) -> Interval:
        """Of the mean of several seeds' means on the same sequences."""
        means_BR = self._weights_BS @ np.stack(values_RS).T
        chosen_BR = self._generator.integers(means_BR.shape[1], size=means_BR.shape)
        return _interval(float(np.mean(values_RS)), np.take_along_axis(means_BR, chosen_BR, axis=1).mean(axis=1))


def _interval(value: float, values_B: Floats) -> Interval:
    finite = values_B[np.isfinite(values_B)]
    if not len(finite):
        return Interval(value, float("nan"), float("nan"))
    low, high = np.percentile(finite, LEVELS)
    return Interval(value, float(low), float(high))
