"""Tests and intervals of rate ratios, against exact probabilities and simulated documents."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
from numpy.typing import NDArray

from mxd.trainer.analysis.rate_ratios import (
    DocumentCounts,
    RateRatios,
    pearson3_p_values,
    q_values,
    rate_ratios,
)

SIZES = [(60, 60), (20, 200), (150, 30)]


def counted(tokens_D: NDArray[np.int64], active_DN: NDArray[np.int64]) -> DocumentCounts:
    document_P, expert_P = np.nonzero(active_DN)
    count_P = active_DN[document_P, expert_P]
    return DocumentCounts(tokens_D, document_P, expert_P, count_P, count_P.astype(np.float64), active_DN.shape[1])


def simulated(
    sizes: tuple[int, int], experts: int, ratio: float, seed: int
) -> tuple[DocumentCounts, NDArray[np.bool_]]:
    """Documents with unequal lengths and bursts: the density of a document varies by a gamma factor."""
    generator = np.random.default_rng(seed)
    tokens_D = generator.integers(60, 400, sum(sizes))
    in_a_D = np.arange(sum(sizes)) < sizes[0]
    density_N = np.geomspace(3e-4, 3e-2, experts)
    burst_DN = generator.gamma(0.25, 4.0, (len(tokens_D), experts))
    mean_DN = tokens_D[:, None] * density_N * burst_DN * np.where(in_a_D, ratio, 1.0)[:, None]
    return counted(tokens_D, np.minimum(generator.poisson(mean_DN), tokens_D[:, None])), in_a_D


def compared(sizes: tuple[int, int], ratio: float = 1.0) -> tuple[RateRatios, NDArray[np.bool_]]:
    ratios = rate_ratios(*simulated(sizes, experts=2000, ratio=ratio, seed=7))
    chosen_N = ratios.enough(min_tokens=20, min_units=10)
    assert chosen_N.sum() > 1000
    return ratios, chosen_N


@pytest.mark.parametrize("sizes", SIZES)
def test_without_a_difference_hardly_an_expert_is_found(sizes: tuple[int, int]) -> None:
    ratios, chosen_N = compared(sizes)
    p_values = ratios.p_value_N[chosen_N]
    assert (p_values <= 0.05).mean() <= 0.055
    assert (p_values <= 0.001).mean() <= 0.002
    assert (q_values(p_values) <= 0.05).sum() <= 1


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("ratio", [1.0, 3.0])
def test_intervals_include_the_true_ratio(sizes: tuple[int, int], ratio: float) -> None:
    ratios, chosen_N = compared(sizes, ratio)
    covered_N = (ratios.low_N <= np.log(ratio)) & (np.log(ratio) <= ratios.high_N)
    assert covered_N[chosen_N].mean() >= 0.93


def test_a_difference_is_found() -> None:
    ratios, chosen_N = compared((60, 60), ratio=4.0)
    found = q_values(ratios.p_value_N[chosen_N]) <= 0.05
    assert found.mean() > 0.6
    assert (ratios.log_ratio_N[chosen_N][found] > 0).mean() > 0.99


def test_swapped_texts_invert_the_ratio() -> None:
    counts, in_a_D = simulated((40, 90), experts=200, ratio=2.0, seed=1)
    one, other = rate_ratios(counts, in_a_D), rate_ratios(counts, ~in_a_D)
    np.testing.assert_allclose(one.log_ratio_N, -other.log_ratio_N, equal_nan=True, atol=1e-12)
    np.testing.assert_allclose(one.low_N, -other.high_N, equal_nan=True, atol=1e-12)
    np.testing.assert_allclose(one.p_value_N, other.p_value_N, rtol=1e-6)


def test_the_p_value_is_close_to_that_of_all_assignments() -> None:
    tokens_D = np.array([50, 80, 60, 100, 90, 70, 40, 110, 65, 75, 85, 95])
    active_D = np.array([9, 7, 12, 10, 8, 2, 0, 5, 1, 3, 0, 6])
    residual_D = active_D - active_D.sum() / tokens_D.sum() * tokens_D
    sums = np.array([residual_D[list(chosen)].sum() for chosen in combinations(range(12), 5)])
    assert len(sums) == comb(12, 5)
    observed = residual_D[:5].sum()
    exact = 2 * min((sums >= observed - 1e-9).mean(), (sums <= observed + 1e-9).mean())
    ratios = rate_ratios(counted(tokens_D, active_D[:, None]), np.arange(12) < 5)
    assert 0.5 * exact < ratios.p_value_N[0] < 3 * exact < 0.02


def test_the_heavy_tail_of_a_rare_expert_is_not_normal() -> None:
    # Binomial(10, 0.1): standardised 5 successes, 0.00091 with half the probability of 5 itself.
    z, skewness = np.array([4.0 / 0.9**0.5]), np.array([0.8 / 0.9**0.5])
    one_sided = pearson3_p_values(z, skewness)[0] / 2
    assert one_sided == pytest.approx(0.0009, rel=0.5)
    assert pearson3_p_values(z, np.zeros(1))[0] / 2 < 2e-5
    assert pearson3_p_values(-z, -skewness)[0] == pytest.approx(2 * one_sided)


def test_an_expert_that_one_text_lacks_has_a_finite_interval() -> None:
    tokens_D = np.full(40, 100)
    active_DN = np.zeros((40, 3), np.int64)
    active_DN[:20, 0] = 5
    active_DN[:, 1] = 100
    ratios = rate_ratios(counted(tokens_D, active_DN), np.arange(40) < 20)
    assert 0 < ratios.low_N[0] < ratios.log_ratio_N[0] < ratios.high_N[0] < np.inf
    assert ratios.p_value_N[0] < 1e-6
    assert ratios.log_ratio_N[1] == pytest.approx(0) and ratios.p_value_N[1] == 1
    assert ratios.p_value_N[2] == 1 and not ratios.enough(1, 2)[2]


def test_q_values_follow_benjamini_and_hochberg() -> None:
    p_values = np.array([0.01, 0.04, 0.03, 0.005, 0.9])
    np.testing.assert_allclose(q_values(p_values), [0.025, 0.05, 0.05, 0.025, 0.9])
