"""Sampling: filters, and the coupling of two variants."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from mxd.trainer.config import Sampling
from mxd.trainer.inference.generation import (
    _Nucleus,
    apply_repetition_penalty,
    gumbel_noise,
    gumbel_noises,
    sample_tokens,
)

PLAIN = Sampling(temperature=1, top_p=1, top_k=0, repetition_penalty=1)
LOGITS_V = torch.tensor([0.1, 3.0, 2.9, -1.0, 0.5])


def sample(sampling: Sampling, logits_V: torch.Tensor, count: int = 4000) -> torch.Tensor:
    noise_RV = torch.stack([gumbel_noise(7, step, len(logits_V)) for step in range(count)])
    ids = sample_tokens(logits_V.expand(count, -1), [set()] * count, [sampling] * count, noise_RV)
    return torch.bincount(torch.tensor(ids), minlength=len(logits_V)) / count


def test_frequencies_match_probabilities() -> None:
    torch.testing.assert_close(sample(PLAIN, LOGITS_V), LOGITS_V.softmax(dim=0), rtol=0, atol=0.03)


def test_top_k_and_top_p_exclude_the_rest() -> None:
    assert sample(PLAIN.model_copy(update={"top_k": 2}), LOGITS_V, 300)[[0, 3, 4]].sum() == 0
    assert sample(PLAIN.model_copy(update={"top_p": 0.5}), LOGITS_V, 300)[[0, 3, 4]].sum() == 0
    assert sample(PLAIN.model_copy(update={"top_p": 0.01}), LOGITS_V, 300)[1] == 1


@given(st.integers(1, 400), st.floats(0.01, 1), st.integers(0, 300), st.floats(0.01, 4), st.integers(0, 1000))
def test_filters_equal_a_full_sort(size: int, top_p: float, top_k: int, spread: float, seed: int) -> None:
    logits_V = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * spread
    sampling = PLAIN.model_copy(update={"top_p": top_p, "top_k": top_k})
    order = logits_V.argsort(descending=True, stable=True)[: top_k or size]
    probabilities = logits_V[order].softmax(dim=0)
    before = probabilities.cumsum(dim=0) - probabilities
    # Two bounds, for rounding decides on those whose betters hold top_p almost exactly.
    surely, perhaps = (set(order[before < top_p + room].tolist()) for room in (-1e-9, 1e-9))
    actual = _Nucleus(logits_V.unsqueeze(0), [sampling]).allowed(torch.tensor([0]))[0].nonzero().flatten()
    assert surely <= set(actual.tolist()) <= perhaps


@given(st.integers(2, 400), st.floats(0.01, 1), st.integers(0, 300), st.floats(0.01, 4), st.integers(0, 1000))
def test_the_best_allowed_token_is_sampled(size: int, top_p: float, top_k: int, spread: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits_RV = torch.randn(6, size, generator=generator, dtype=torch.float64) * spread
    noise_RV = torch.stack([gumbel_noise(seed, row, size) for row in range(6)])
    filtered = PLAIN.model_copy(update={"top_p": top_p, "top_k": top_k})
    greedy = filtered.model_copy(update={"temperature": 0})
    kept_RV = _Nucleus(logits_RV, [filtered] * 6).allowed(torch.arange(6))
    expected = torch.where(kept_RV, logits_RV + noise_RV, -torch.inf).argmax(dim=1)
    expected[3] = logits_RV[3].argmax()
    samplings = [*[filtered] * 3, greedy, *[filtered] * 2]
    assert sample_tokens(logits_RV, [set()] * 6, samplings, noise_RV) == expected.tolist()


def test_repetition_penalty_lowers_used_tokens() -> None:
    sampling = PLAIN.model_copy(update={"repetition_penalty": 2.0})
    logits_RV = apply_repetition_penalty(LOGITS_V.repeat(2, 1), [{1, 3}, {4}], [sampling] * 2)
    expected_RV = torch.tensor([[0.1, 1.5, 2.9, -2.0, 0.5], [0.1, 3.0, 2.9, -1.0, 0.25]])
    torch.testing.assert_close(logits_RV, expected_RV)


@given(st.integers(0, 2**40), st.integers(0, 500))
def test_variants_with_equal_probabilities_sample_the_same_token(seed: int, step: int) -> None:
    noise_RV = gumbel_noise(seed, step, 5).repeat(2, 1)
    logits_RV = torch.stack([LOGITS_V, LOGITS_V + 2.0])  # the same distribution
    sampling = PLAIN.model_copy(update={"top_p": 0.9})
    left, right = sample_tokens(logits_RV, [set(), set()], [sampling] * 2, noise_RV)
    assert left == right


def test_noise_of_several_steps_equals_single_steps() -> None:
    steps = [(0, 3), (2**40, 0), (0, 4)]
    assert torch.equal(gumbel_noises(steps, 1001), torch.stack([gumbel_noise(*step, 1001) for step in steps]))
