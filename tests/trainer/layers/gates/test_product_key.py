"""Product-key top-k against the K largest of all sums."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mxd.trainer.config.gates import codebooks
from mxd.trainer.layers.gates.product_key import ProductKeyGate, largest_sums


@settings(max_examples=300, deadline=None)
@given(num_experts=st.integers(1, 400), k=st.integers(1, 70), seed=st.integers(0, 10_000))
def test_largest_sums_match_a_full_search(num_experts: int, k: int, seed: int) -> None:
    k = min(k, num_experts)
    entries, width = codebooks(num_experts)
    generator = torch.Generator().manual_seed(seed)
    first_TA = torch.randn(3, entries, generator=generator, dtype=torch.float64)
    second_TB = torch.randn(3, width, generator=generator, dtype=torch.float64)
    every_TN = (first_TA.unsqueeze(2) + second_TB.unsqueeze(1)).flatten(1)[:, :num_experts]
    expected = every_TN.topk(k, dim=1)
    values_TK, ids_TK = largest_sums(first_TA, second_TB, num_experts, k)
    assert torch.equal(values_TK, expected.values)
    assert torch.equal(ids_TK, expected.indices)


@settings(max_examples=100, deadline=None)
@given(num_experts=st.integers(1, 400), k=st.integers(1, 70), seed=st.integers(0, 10_000))
def test_ties_do_not_change_the_largest_values(num_experts: int, k: int, seed: int) -> None:
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
def test_codebooks_have_a_pair_per_expert_and_no_unused_entry(num_experts: int) -> None:
    first, second = codebooks(num_experts)
    assert (first - 1) * second < num_experts <= first * second
    assert second - 1 < num_experts**0.5 + 1e-6
    assert first <= second


def test_initialization_recovers_directions_that_are_sums() -> None:
    """Directions that are sums of two rows are recovered exactly."""
    generator = torch.Generator().manual_seed(0)
    first_AI = 10 * torch.randn(4, 16, generator=generator)
    second_BI = torch.randn(4, 16, generator=generator)
    directions_NI = (first_AI.unsqueeze(1) + second_BI).flatten(0, 1)[torch.randperm(16, generator=generator)]
    gate = ProductKeyGate(16, 16)
    order_N = gate.initialize(directions_NI, torch.zeros(16))
    actual_NI = gate.rows(slice(None))
    torch.testing.assert_close(
        torch.nn.functional.normalize(actual_NI, dim=1),
        torch.nn.functional.normalize(directions_NI[order_N], dim=1),
        rtol=1e-4,
        atol=1e-4,
    )
