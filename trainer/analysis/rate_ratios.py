"""Ratios of activation densities between two texts, with intervals and tests over documents.

Tokens of one document are not independent: an expert on code fires in every line of a program. The unit is therefore
the document. With m tokens and y active ones in a document, and the density p of both texts together:

- **Test.** The residuals y - p m sum to 0 over all documents. Their sum T over the documents of text A is compared with
  its distribution over all assignments of documents to the texts. The mean, variance and skewness of that distribution
  are exact; its heavier tail is that of the Pearson type III distribution with these moments (Mielke and Berry). A
  normal tail is too light if an expert is rare and one text is much smaller.
- **Interval.** The variance of the log ratio is the sum of one variance per text. Each is that of a ratio estimator,
  sum (y - p m)^2 / (sum y)^2. It is at least the dispersion of both texts together divided by the text's active tokens
  (quasi-Poisson), which matters if a text has hardly any. Half an active token is added to each text, so the ratio is
  finite.

Shapes: D documents, P (document, expert) pairs with active tokens, N experts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from mxd.trainer.analysis.indexing.statistics import Ints

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
NORMAL_97_5 = 1.959964
HALF_TOKEN = 0.5
SMALL_SKEWNESS = 1e-3
"""Skewness below which the normal distribution is used; the gamma function loses digits there."""


@dataclass(frozen=True)
class DocumentCounts:
    """Active tokens of each expert in each document."""

    tokens_D: Ints
    document_P: Ints
    expert_P: Ints
    count_P: Ints
    activation_P: Floats
    """Summed activation."""
    num_experts: int

    def sums(self, value_P: Floats | Ints, chosen_P: Mask | slice = slice(None)) -> Floats:
        """Sum a value of each pair over the chosen pairs of each expert, [N]."""
        weight_P = value_P.astype(np.float64)[chosen_P]
        return np.bincount(self.expert_P[chosen_P], weight_P, self.num_experts).astype(np.float64)


class TextSums(NamedTuple):
    """Sums over the documents of a text; each field [N] or a number."""

    documents: int
    tokens: float
    squared_tokens: float
    active_N: Floats
    units_N: Floats
    """Documents with an active token."""
    squares_N: Floats
    """Sum of y^2."""
    products_N: Floats
    """Sum of y m."""
    activation_N: Floats

    @classmethod
    def of(cls, counts: DocumentCounts, chosen_D: Mask) -> TextSums:
        """Sum over the chosen documents."""
        tokens_D = counts.tokens_D[chosen_D].astype(np.float64)
        chosen_P, count_P = chosen_D[counts.document_P], counts.count_P
        return cls(
            documents=len(tokens_D),
            tokens=float(tokens_D.sum()),
            squared_tokens=float((tokens_D**2).sum()),
            active_N=counts.sums(count_P, chosen_P),
            units_N=counts.sums(np.ones(len(count_P)), chosen_P),
            squares_N=counts.sums(count_P**2, chosen_P),
            products_N=counts.sums(count_P * counts.tokens_D[counts.document_P], chosen_P),
            activation_N=counts.sums(counts.activation_P, chosen_P),
        )

    def variance(self) -> Floats:
        """Variance of the number of active tokens around density times tokens, [N]."""
        density_N = self.active_N / self.tokens
        # Sum of (y - p m)^2. Rounding may leave a tiny negative number.
        sum_N = self.squares_N - 2 * density_N * self.products_N + density_N**2 * self.squared_tokens
        return self.documents / max(self.documents - 1, 1) * np.maximum(sum_N, 0.0)


@dataclass(frozen=True)
class RateRatios:
    """Comparison of all experts; each field [N]."""

    a: TextSums
    b: TextSums
    log_ratio_N: Floats
    error_N: Floats
    """Standard error of the log ratio; NaN for experts that are never active."""
    p_value_N: Floats

    @property
    def low_N(self) -> Floats:
        """Lower end of the 95 % interval of the log ratio."""
        return self.log_ratio_N - NORMAL_97_5 * self.error_N

    @property
    def high_N(self) -> Floats:
        """Upper end of the 95 % interval of the log ratio."""
        return self.log_ratio_N + NORMAL_97_5 * self.error_N

    def enough(self, min_tokens: int, min_units: int) -> Mask:
        """Mask of the experts with enough active tokens and documents in both texts together, [N].

        Both numbers are the same for every assignment of documents, so the choice does not bias the test.
        """
        enough_N: Mask = (self.a.active_N + self.b.active_N >= min_tokens) & (
            self.a.units_N + self.b.units_N >= min_units
        )
        return enough_N


def rate_ratios(counts: DocumentCounts, in_a_D: Mask) -> RateRatios:
    """Compare the documents of text A with all others. Both texts need at least one document."""
    a, b = TextSums.of(counts, in_a_D), TextSums.of(counts, ~in_a_D)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratio_N, error_N = _log_ratio(a, b)
        p_value_N = _p_values(counts, a, b)
    return RateRatios(a, b, log_ratio_N, error_N, p_value_N)


def _log_ratio(a: TextSums, b: TextSums) -> tuple[Floats, Floats]:
    """Log ratio of the densities and its standard error, [N] each."""
    active_N = a.active_N + b.active_N
    density_N = active_N / (a.tokens + b.tokens)
    dispersion_N = (a.variance() + b.variance()) / active_N
    log_density, variance = [], []
    for text in (a, b):
        raised_N = text.active_N + HALF_TOKEN
        log_density.append(np.log(raised_N / (text.tokens + HALF_TOKEN / density_N)))
        variance.append(np.maximum(text.variance() / raised_N**2, dispersion_N / raised_N))
    return log_density[0] - log_density[1], np.sqrt(variance[0] + variance[1])


def _p_values(counts: DocumentCounts, a: TextSums, b: TextSums) -> Floats:
    """Two-sided p-values of the random assignment of documents, [N]; 1 if it has no variance."""
    n, size_a, size_b = a.documents + b.documents, a.documents, b.documents
    density_N = (a.active_N + b.active_N) / (a.tokens + b.tokens)
    squared_N, cubed_N = _residual_moments(counts, density_N)
    variance_N = size_a * size_b / (n * (n - 1)) * squared_N
    third_N = size_a * size_b * (size_b - size_a) / (n * (n - 1) * max(n - 2, 1)) * cubed_N
    z_N = (a.active_N - density_N * a.tokens) / np.sqrt(variance_N)
    skewness_N = third_N / variance_N**1.5
    is_known_N = np.isfinite(z_N) & np.isfinite(skewness_N)
    p_value_N = np.ones(len(z_N))
    p_value_N[is_known_N] = pearson3_p_values(z_N[is_known_N], skewness_N[is_known_N])
    return p_value_N


def _residual_moments(counts: DocumentCounts, p_N: Floats) -> tuple[Floats, Floats]:
    """Sums of the second and third power of y - p m over all documents, [N] each."""
    y_P, m_D = counts.count_P.astype(np.float64), counts.tokens_D.astype(np.float64)
    m_P = m_D[counts.document_P]
    squared_N = counts.sums(y_P**2) - 2 * p_N * counts.sums(y_P * m_P) + p_N**2 * (m_D**2).sum()
    cubed_N = (
        counts.sums(y_P**3)
        - 3 * p_N * counts.sums(y_P**2 * m_P)
        + 3 * p_N**2 * counts.sums(y_P * m_P**2)
        - p_N**3 * (m_D**3).sum()
    )
    return np.maximum(squared_N, 0.0), cubed_N


def pearson3_p_values(z: Floats, skewness: Floats) -> Floats:
    """Two-sided p-values of standardised values under the Pearson type III distribution of a given skewness.

    The light tail of that distribution ends at a finite value, which a permutation can pass. There the normal
    distribution is used, whose tail is heavier.
    """
    value, skew = torch.from_numpy(z), torch.from_numpy(skewness)
    # A negative skewness is the mirror image of a positive one.
    mirrored = torch.where(skew < 0, -value, value)
    shape = (2 / skew.abs().clamp_min(SMALL_SKEWNESS)) ** 2
    heavy_tail = torch.special.gammaincc(shape, (shape + mirrored * shape.sqrt()).clamp_min(0))
    normal_tail = torch.special.erfc(mirrored.abs() / 2**0.5) / 2
    is_normal = (mirrored < 0) | (skew.abs() < SMALL_SKEWNESS)
    p_values: Floats = (2 * torch.where(is_normal, normal_tail, heavy_tail)).clamp_max(1).numpy()
    return p_values


def q_values(p_values: Floats) -> Floats:
    """Benjamini-Hochberg q-values: the smallest false discovery rate at which each hypothesis is rejected."""
    order = np.argsort(p_values)
    scaled = p_values[order] * len(p_values) / np.arange(1, len(p_values) + 1)
    result = np.empty(len(p_values))
    result[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return result
