"""Few numbers instead of whole inputs: the best there are, and with all of them the scores themselves."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.layers.gates.flat import FlatGate
from trainer.layers.gates.projected import axes_of, found_by, numbers_for, projected_of

WIDTH, K = 6, 3


def fitted(num_experts: int = 40, seed: int = 0) -> tuple[FlatGate, torch.Tensor]:
    """A random gate, and inputs that vary in few directions and not around 0."""
    generator = torch.Generator().manual_seed(seed)
    gate = FlatGate(WIDTH, num_experts)
    for parameter in gate.parameters():
        parameter.data.normal_(generator=generator)
    scales_I = torch.tensor([4.0, 3.0, 1.0, 0.5, 0.1, 0.1])
    return gate, 1 + scales_I * torch.randn(300, WIDTH, generator=generator)


@settings(max_examples=30, deadline=None)
@given(num_experts=st.integers(K, 60), numbers=st.integers(1, WIDTH + 1), seed=st.integers(0, 1000))
def test_with_every_expert_a_candidate_it_is_the_flat_gate(num_experts: int, numbers: int, seed: int) -> None:
    gate, x_TI = fitted(num_experts, seed)
    made = projected_of(gate, axes_of(gate, x_TI), numbers, num_experts)
    with torch.no_grad():
        wanted, found = gate.choose(x_TI, K), made.choose(x_TI, K)
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-4, atol=1e-4)
    found_of_it = found_by(made, gate, x_TI, K)
    assert found_of_it.chosen in (0.0, 1.0)  # 0 where no score is positive
    assert found_of_it.mass == pytest.approx(found_of_it.chosen)


def test_all_numbers_are_the_scores_themselves() -> None:
    gate, x_TI = fitted()
    made = projected_of(gate, axes_of(gate, x_TI), WIDTH + 1, K)
    z_TR = x_TI @ made.projection_RI.T + made.offset_R
    torch.testing.assert_close(z_TR @ made.key_NR.T, gate(x_TI).detach(), rtol=1e-3, atol=1e-3)
    assert found_by(made, gate, x_TI, K).chosen > 0.99


@pytest.mark.parametrize("numbers", [1, 3, 5])
def test_no_other_keys_are_closer_to_the_scores(numbers: int) -> None:
    """The singular values that are left out are all that is lost."""
    gate, x_TI = fitted()
    made = projected_of(gate, axes_of(gate, x_TI), numbers, K)
    scores_TN = gate(x_TI).detach().double()
    lost = ((x_TI @ made.projection_RI.T + made.offset_R) @ made.key_NR.T - scores_TN).square().sum()
    least = torch.linalg.svdvals(scores_TN)[numbers:].square().sum()
    assert lost.item() == pytest.approx(least.item(), rel=2e-3)


def test_the_fewest_numbers_that_find_enough() -> None:
    gate, x_TI = fitted()
    axes = axes_of(gate, x_TI)
    numbers = numbers_for(gate, axes, x_TI, K, 8, 0.9)
    assert 1 < numbers < WIDTH
    assert found_by(projected_of(gate, axes, numbers, 8), gate, x_TI, K).chosen >= 0.9
    assert found_by(projected_of(gate, axes, numbers - 1, 8), gate, x_TI, K).chosen < 0.9
