"""Gate sizes: parameters, scores and invalid settings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxd.trainer.config.gates import GateConfig, GateForm, GateSizes, gate_groups, resolve_gate
from mxd.trainer.errors import UserError
from mxd.trainer.layers.gates import build_gate


@settings(max_examples=200, deadline=None)
@given(num_experts=st.integers(1, 3000), k=st.integers(1, 40), groups=st.none() | st.integers(1, 60))
def test_resolved_groups_hold_k_experts(num_experts: int, k: int, groups: int | None) -> None:
    k, groups = min(k, num_experts), groups and min(groups, num_experts)
    config = resolve_gate(GateConfig(gate="two-level", groups=groups), num_experts, k)
    number, size, chosen = gate_groups(config, num_experts)
    assert (number - 1) * size < num_experts <= number * size
    assert number == config.groups
    assert 1 <= chosen <= number
    assert min(chosen * size - (number * size - num_experts), num_experts) >= k
    assert resolve_gate(config, num_experts, k) == config


@pytest.mark.parametrize("form", ["flat", "product-key", "two-level"])
@pytest.mark.parametrize("num_experts", [1, 33, 1000])
def test_parameters_match_the_gate(form: GateForm, num_experts: int) -> None:
    config = resolve_gate(GateConfig(gate=form), num_experts, 1)
    counted = sum(parameter.numel() for parameter in build_gate(config, 12, num_experts, 1).parameters())
    assert GateSizes(config, num_experts, 12).parameters == counted


def test_scores_of_a_million_experts() -> None:
    def scores(form: GateForm) -> int:
        sizes = GateSizes(resolve_gate(GateConfig(gate=form), 10**6, 32), 10**6, 768)
        assert sum(it.flops_per_token for it in sizes.products(256)) == sizes.flops == 2 * 768 * sizes.scores
        return sizes.scores

    assert scores("flat") == 10**6
    assert scores("product-key") == 2000
    assert scores("two-level") == 1000 + 8 * 1000


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (GateConfig(gate="flat", groups=3), "has no groups"),
        (GateConfig(gate="product-key", top_groups=3), "has no groups"),
        (GateConfig(gate="two-level", groups=50), "groups=50 exceeds"),
        (GateConfig(gate="two-level", groups=10, top_groups=11), "top_groups=11 exceeds the number of groups, 10"),
        (GateConfig(gate="two-level", groups=10, top_groups=1), "fewer than k=5. Raise --top-groups to 2"),
    ],
)
def test_invalid_settings_are_reported(config: GateConfig, message: str) -> None:
    with pytest.raises(UserError, match=message):
        resolve_gate(config, 40, 5)
