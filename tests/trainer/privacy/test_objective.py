"""The two divergences from the uniform distribution, and gradients that do not undo each other."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.privacy.objective import LOSSES, kl_from_uniform, missing_entropy, without_conflict


@given(st.integers(0, 2**31), st.integers(2, 40), st.floats(0.1, 20))
def test_both_are_the_divergences_that_they_are_called(seed: int, vocabulary: int, scale: float) -> None:
    logits_PV = scale * torch.randn(3, vocabulary, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    p_PV = logits_PV.softmax(-1)
    uniform = 1 / vocabulary
    from_uniform_P = (uniform * (math.log(uniform) - p_PV.log())).sum(-1)
    to_uniform_P = (p_PV * (p_PV.log() - math.log(uniform))).sum(-1)
    assert torch.allclose(kl_from_uniform(logits_PV), from_uniform_P)
    assert torch.allclose(missing_entropy(logits_PV), to_uniform_P)
    flat_PV = torch.full((1, vocabulary), scale, dtype=torch.float64)
    for loss in LOSSES.values():
        assert loss(flat_PV).item() == pytest.approx(0, abs=1e-9)
        assert (loss(logits_PV) > -1e-9).all()


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    logits_PV = torch.randn(4, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(LOSSES[name], (logits_PV,))  # type: ignore[index]


@given(st.integers(0, 2**31))
def test_neither_gradient_undoes_the_other(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    first, other = ([torch.randn(3, 2, generator=generator), torch.randn(4, generator=generator)] for _ in range(2))
    combined = torch.cat([part.flatten() for part in without_conflict(first, other)])
    a, b = (torch.cat([part.flatten() for part in parts]) for parts in (first, other))
    if a @ b >= 0:
        assert torch.allclose(combined, a + b)
    else:
        assert combined @ a >= -1e-4
        assert combined @ b >= -1e-4
        opposed = a - (a @ b) / (b @ b) * b
        assert abs(opposed @ b) < 1e-4


def test_opposite_gradients_leave_nothing() -> None:
    parts = [torch.tensor([1.0, 2.0]), torch.tensor([[3.0]])]
    assert all(torch.allclose(left, torch.zeros(1)) for left in without_conflict(parts, [-2 * part for part in parts]))
