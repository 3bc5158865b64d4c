"""95 % bootstrap confidence intervals over sequences and over seeds.

Sequences are resampled with replacement. All interventions on a sequence share the resample, so differences are paired.
Over seeds, seeds are resampled first, then sequences (the same for all seeds). With two or three seeds such an interval
is coarse.

Shapes: B resamples, S sequences, R seeds, E cosines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mxd.trainer.utils.schema import documented

Floats = npt.NDArray[np.float64]
PERCENTILES = (2.5, 97.5)


@documented
@dataclass(frozen=True)
class Interval:
    """A point estimate and its 95 % percentile interval."""

    value: float
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""


class Bootstrap:
    """Fixed resamples, shared by all quantities measured on the same sequences."""

    def __init__(self, sequences: int, resamples: int, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        share_S = np.full(sequences, 1 / sequences)
        self._weights_BS: Floats = self._generator.multinomial(sequences, share_S, size=resamples) / sequences

    def mean(self, values_S: Floats) -> Interval:
        """Interval of the mean."""
        return _interval(float(values_S.mean()), self._weights_BS @ values_S)

    def ratio(self, numerator_S: Floats, denominator_S: Floats) -> Interval:
        """Interval of the ratio of two means. NaN if the denominator's mean is zero."""
        with np.errstate(divide="ignore", invalid="ignore"):
            values_B = (self._weights_BS @ numerator_S) / (self._weights_BS @ denominator_S)
            value = numerator_S.mean() / denominator_S.mean()
        return _interval(float(value), values_B)

    def cosines(self, products_SE: Floats, squares_SE: Floats, other_squares_SE: Floats) -> tuple[Floats, Floats]:
        """Ends of the intervals of E cosines, from sums of products and squares over each sequence. A cosine with zeros
        is 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            sums = (self._weights_BS @ sums_SE for sums_SE in (products_SE, squares_SE, other_squares_SE))
            products_BE, squares_BE, other_squares_BE = sums
            values_BE = np.nan_to_num(products_BE / np.sqrt(squares_BE * other_squares_BE))
        low_E, high_E = np.percentile(values_BE, PERCENTILES, axis=0)
        return low_E, high_E

    def mean_over_seeds(self, values_RS: Sequence[Floats]) -> Interval:
        """Interval of the mean over seeds, each measured on the same sequences."""
        means_BR = self._weights_BS @ np.stack(values_RS).T
        seeds_BR = self._generator.integers(means_BR.shape[1], size=means_BR.shape)
        return _interval(float(np.mean(values_RS)), np.take_along_axis(means_BR, seeds_BR, axis=1).mean(axis=1))


def _interval(value: float, values_B: Floats) -> Interval:
    finite = values_B[np.isfinite(values_B)]
    if not len(finite):
        return Interval(value, float("nan"), float("nan"))
    low, high = np.percentile(finite, PERCENTILES)
    return Interval(value, float(low), float(high))
