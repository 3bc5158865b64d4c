"""The K largest of all sums, from few candidates."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.gate_config import codebooks
from trainer.layers.gates.product_key import ProductKeyGate, largest_sums


@settings(max_examples=300, deadline=None)
@given(num_experts=st.integers(1, 400), k=st.integers(1, 70), seed=st.integers(0, 10_000))
def test_the_largest_of_all_sums(num_experts: int, k: int, seed: int) -> None:
    k = min(k, num_experts)
    entries, width = codebooks(num_experts)
    generator = torch.Generator().manual_seed(seed)
    first_TA = torch.randn(3, entries, generator=generator, dtype=torch.float64)
    second_TB = torch.randn(3, width, generator=generator, dtype=torch.float64)
    every_TN = (first_TA.unsqueeze(2) + second_TB.unsqueeze(1)).flatten(1)[:, :num_experts]
    wanted = every_TN.topk(k, dim=1)
    values_TK, ids_TK = largest_sums(first_TA, second_TB, num_experts, k)
    assert torch.equal(values_TK, wanted.values)
    assert torch.equal(ids_TK, wanted.indices)


@settings(max_examples=100, deadline=None)
@given(num_experts=st.integers(1, 400), k=st.integers(1, 70), seed=st.integers(0, 10_000))
def test_with_ties_the_values_are_still_the_largest(num_experts: int, k: int, seed: int) -> None:
    k = min(k, num_experts)
    entries, width = codebooks(num_experts)
    generator = torch.Generator().manual_seed(seed)
    first_TA = torch.randint(3, (3, entries), generator=generator).double()
    second_TB = torch.randint(3, (3, width), generator=generator).double()
    every_TN = (first_TA.unsqueeze(2) + second_TB.unsqueeze(1)).flatten(1)[:, :num_experts]
    values_TK, ids_TK = largest_sums(first_TA, second_TB, num_experts, k)
    assert torch.equal(values_TK, every_TN.topk(k, dim=1).values)
    assert torch.equal(values_TK, every_TN.gather(1, ids_TK))
    assert all(len(row.unique()) == k for row in ids_TK)


@settings(deadline=None)
@given(num_experts=st.integers(1, 10**7))
def test_codebooks_have_a_pair_for_each_expert_and_none_is_idle(num_experts: int) -> None:
    first, second = codebooks(num_experts)
    assert (first - 1) * second < num_experts <= first * second
    assert second - 1 < num_experts**0.5 + 1e-6
    assert first <= second


def test_a_grid_of_alike_directions_is_found_again() -> None:
    """Directions that are sums of two rows come out as such sums, each in its place."""
    generator = torch.Generator().manual_seed(0)
    first_AI = 10 * torch.randn(4, 16, generator=generator)
    second_BI = torch.randn(4, 16, generator=generator)
    directions_NI = (first_AI.unsqueeze(1) + second_BI).flatten(0, 1)[torch.randperm(16, generator=generator)]
    gate = ProductKeyGate(16, 16)
    order_N = gate.start(directions_NI, torch.zeros(16))
    found_NI = gate.rows(slice(None))
    torch.testing.assert_close(
        torch.nn.functional.normalize(found_NI, dim=1),
        torch.nn.functional.normalize(directions_NI[order_N], dim=1),
        rtol=1e-4,
        atol=1e-4,
    )
