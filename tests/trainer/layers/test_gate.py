"""The gate against dense scores, its start from directions, and files of versions that had other gates."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch.nn import functional as F

from mxd.trainer.config import LayerConfig, TrainConfig
from mxd.trainer.layers.gate import Gate
from tests.helpers.layers import random_layer

WIDTH = 9


@given(tokens=st.integers(1, 30), num_experts=st.integers(1, 61), k=st.integers(1, 12), seed=st.integers(0, 10_000))
def test_selection_and_gradients_match_dense_scores(tokens: int, num_experts: int, k: int, seed: int) -> None:
    generator, k = torch.Generator().manual_seed(seed), min(k, num_experts)
    gate = Gate(WIDTH, num_experts).double()
    for parameter in gate.parameters():
        parameter.data.normal_(generator=generator)
    x_TI = torch.randn(tokens, WIDTH, dtype=torch.float64, generator=generator).requires_grad_()
    upstream_TN = torch.randn(tokens, num_experts, dtype=torch.float64, generator=generator)
    coefficients_TK, ids_TK = gate.choose(x_TI, k)
    assert bool((coefficients_TK.diff(dim=1) <= 0).all())
    scores_TN = F.linear(x_TI, gate.weight, gate.bias)
    kept_TN = scores_TN.detach() >= scores_TN.detach().topk(k, dim=1).values[:, -1:]
    expected_TN = scores_TN.relu() * kept_TN
    actual_TN = torch.zeros_like(expected_TN).scatter_add(1, ids_TK, coefficients_TK)
    torch.testing.assert_close(actual_TN, expected_TN, rtol=1e-9, atol=1e-9)
    actual, expected = (
        torch.autograd.grad((values_TN * upstream_TN).sum(), [x_TI, *gate.parameters()])
        for values_TN in (actual_TN, expected_TN)
    )
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


def test_initial_directions_score_zero_at_the_mean() -> None:
    generator = torch.Generator().manual_seed(0)
    directions_NI, mean_I = torch.randn(23, WIDTH, generator=generator), torch.randn(WIDTH, generator=generator)
    gate = Gate(WIDTH, 23)
    gate.initialize(directions_NI, mean_I)
    assert torch.equal(gate.rows(slice(None)), directions_NI)
    assert torch.equal(gate.rows(torch.tensor([5, 22])), directions_NI[[5, 22]])
    assert gate(mean_I).abs().max() < 1e-5


@pytest.mark.parametrize("kind", [LayerConfig, TrainConfig])
def test_files_of_earlier_versions_are_read_if_their_gate_is_flat(kind: type[LayerConfig | TrainConfig]) -> None:
    values: dict[str, Any] = random_layer().config.model_dump()
    if kind is TrainConfig:
        values = {"name": "x", "language_model": "y", "layer": 0, "text": {"dataset": "z"}, "tokens": 1}
    read = kind.model_validate({**values, "gate": {"gate": "flat", "groups": None, "top_groups": None}})
    assert read == kind.model_validate(values)
    with pytest.raises(ValidationError, match=r"'two-level'.* which this version cannot read"):
        kind.model_validate({**values, "gate": {"gate": "two-level", "groups": 8, "top_groups": 2}})
