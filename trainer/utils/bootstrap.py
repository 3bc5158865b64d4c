"""95 % intervals by bootstrap and by Wilson, and AUROC: the probability that a positive example has the larger
value, where ties count half.

Sequences are resampled with replacement. All interventions on a sequence share the resample, so differences are paired.
Over seeds, seeds are resampled first, then sequences (the same for all seeds). With two or three seeds such an interval
is coarse.

Shapes: B resamples, S sequences, R seeds, E cosines, P positive and Q negative examples, F features.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt

from mxd.trainer.utils.display import Documented

Floats = npt.NDArray[np.float64]
PERCENTILES = (2.5, 97.5)


@dataclass(frozen=True)
class Interval(Documented):
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


NORMAL_97_5 = 1.959964
"""Quantile of the normal distribution for a 95 % interval."""


def wilson_interval(share: float, trials: int) -> tuple[float, float]:
    """95 % Wilson interval of a share, which is not empty at 0 and 1."""
    z2 = NORMAL_97_5**2
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = NORMAL_97_5 / (1 + z2 / trials) * sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    # At 0 and 1 rounding could leave the share outside.
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))


Values = npt.NDArray[np.floating] | npt.NDArray[np.integer]
RESAMPLES = 1000


def aurocs(positive_PF: Values, negative_QF: Values) -> Floats:
    """AUROC of each feature, [F]."""
    from scipy.stats import mannwhitneyu  # its import takes more than a second

    wins_F: Floats = mannwhitneyu(positive_PF, negative_QF, axis=0, method="asymptotic").statistic
    return wins_F / (len(positive_PF) * len(negative_QF))


def auroc_interval(positive_P: Values, negative_Q: Values, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """AUROC with a 95 % bootstrap interval; positive and negative examples are resampled separately."""
    wins_PQ = (positive_P[:, None] > negative_Q) + 0.5 * (positive_P[:, None] == negative_Q)
    generator = np.random.default_rng(seed)
    weights = [generator.multinomial(size, np.full(size, 1 / size), size=resamples) / size for size in wins_PQ.shape]
    resampled_B = np.einsum("bp,pq,bq->b", weights[0], wins_PQ, weights[1], optimize=True).clip(0, 1)  # rounding
    low, high = np.percentile(resampled_B, PERCENTILES)
    return Interval(float(wins_PQ.mean()), float(low), float(high))
