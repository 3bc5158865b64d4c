"""KL divergences from the uniform distribution, and conflict-free gradients."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mxd.trainer.training.privacy.metrics import LOSSES, combine_gradients, kl_from_uniform, missing_entropy


@given(st.integers(0, 2**31), st.integers(2, 40), st.floats(0.1, 20))
def test_the_losses_are_kl_divergences(seed: int, vocabulary: int, scale: float) -> None:
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
def test_gradients_equal_finite_differences(name: str) -> None:
    logits_PV = torch.randn(4, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(LOSSES[name], (logits_PV,))  # type: ignore[index]


@given(st.integers(0, 2**31))
def test_combined_gradients_do_not_conflict(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    first, other = ([torch.randn(3, 2, generator=generator), torch.randn(4, generator=generator)] for _ in range(2))
    combined = torch.cat([part.flatten() for part in combine_gradients(first, other)])
    a, b = (torch.cat([part.flatten() for part in parts]) for parts in (first, other))
    if a @ b >= 0:
        assert torch.allclose(combined, a + b)
    else:
        assert combined @ a >= -1e-4
        assert combined @ b >= -1e-4
        opposed = a - (a @ b) / (b @ b) * b
        assert abs(opposed @ b) < 1e-4


def test_opposite_gradients_cancel() -> None:
    parts = [torch.tensor([1.0, 2.0]), torch.tensor([[3.0]])]
    assert all(torch.allclose(left, torch.zeros(1)) for left in combine_gradients(parts, [-2 * part for part in parts]))
