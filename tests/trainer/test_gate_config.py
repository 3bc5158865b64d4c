"""What a gate takes, from sizes alone: what is counted is what is there, and what does not go together is said."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.errors import UserError
from trainer.gate_config import FittedGate, GateConfig, GateSizes, groups_of, settled
from trainer.layers.gates import build_gate


@settings(max_examples=200, deadline=None)
@given(num_experts=st.integers(1, 3000), k=st.integers(1, 40), groups=st.none() | st.integers(1, 60))
def test_settled_groups_hold_k_experts_and_are_settled(num_experts: int, k: int, groups: int | None) -> None:
    k, groups = min(k, num_experts), groups and min(groups, num_experts)
    config = settled(GateConfig(gate="two-level", groups=groups), num_experts, k)
    number, size, chosen = groups_of(config, num_experts)
    assert (number - 1) * size < num_experts <= number * size
    assert number == config.groups
    assert 1 <= chosen <= number
    assert min(chosen * size - (number * size - num_experts), num_experts) >= k
    assert settled(config, num_experts, k) == config


@pytest.mark.parametrize("form", ["flat", "product-key", "two-level"])
@pytest.mark.parametrize("num_experts", [1, 33, 1000])
def test_parameters_are_those_of_the_gate(form: FittedGate, num_experts: int) -> None:
    config = settled(GateConfig(gate=form), num_experts, 1)
    counted = sum(parameter.numel() for parameter in build_gate(config, 12, num_experts, 1).parameters())
    assert GateSizes(config, num_experts, 12).parameters == counted


def test_scores_of_a_million_experts() -> None:
    def scores(form: FittedGate) -> int:
        sizes = GateSizes(settled(GateConfig(gate=form), 10**6, 32), 10**6, 768)
        assert sum(it.flops_per_token for it in sizes.products(256)) == sizes.flops == 2 * 768 * sizes.scores
        return sizes.scores

    assert scores("flat") == 10**6
    assert scores("product-key") == 2000
    assert scores("two-level") == 1000 + 8 * 1000


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (GateConfig(gate="flat", groups=3), "has no groups; leave --groups"),
        (GateConfig(gate="product-key", chosen_groups=3), "has no groups; leave --groups"),
        (GateConfig(gate="two-level", groups=50), "cannot be put into 50 groups"),
        (GateConfig(gate="two-level", groups=10, chosen_groups=11), "make 10 groups of 4; lower --chosen-groups to 10"),
        (GateConfig(gate="two-level", groups=10, chosen_groups=1), "fewer than K = 5; raise --chosen-groups to 2"),
        (GateConfig(gate="flat", numbers=3), "neither numbers nor candidates"),
        (GateConfig(gate="projected", numbers=3, candidates=4), "from K to N candidates"),
        (GateConfig(gate="projected"), "make it with mxd approximate"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(config: GateConfig, said: str) -> None:
    with pytest.raises(UserError, match=said):
        settled(config, 40, 5)
