"""The sparse kernels against dense products, forward and backward, on awkward sizes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trainer.layers import kernels


def dense_gate(x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, k: int) -> tuple[Tensor, Tensor]:
    scores_TN = torch.relu(x_TI @ weight_NI.T + bias_N)
    top = scores_TN.topk(k, dim=1)
    return torch.zeros_like(scores_TN).scatter(1, top.indices, top.values), top.indices


def gradients(output: Tensor, inputs: list[Tensor], upstream: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad((output * upstream).sum(), inputs))


@settings(max_examples=40, deadline=None)
@given(
    tokens=st.integers(1, 40),
    num_experts=st.integers(1, 61),
    k=st.integers(1, 12),
    shift=st.sampled_from([-8.0, -1.0, 0.0, 3.0]),
    seed=st.integers(0, 10_000),
)
def test_gate_and_mix_equal_the_dense_form(tokens: int, num_experts: int, k: int, shift: float, seed: int) -> None:
    k = min(k, num_experts)
    generator = torch.Generator().manual_seed(seed)

    def values(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    x, weight, table = values(tokens, 7), values(num_experts, 7), values(num_experts, 9)
    bias = (values(num_experts).detach() + shift).requires_grad_()
    inputs = [x, weight, bias, table]
    upstream = torch.randn(tokens, 9, generator=generator, dtype=torch.float64)

    coefficients_TK, indices_TK = kernels.gate(x, weight, bias, k)
    sparse = kernels.mix(coefficients_TK, indices_TK, table)
    dense_TN, _ = dense_gate(x, weight, bias, k)
    dense = dense_TN @ table

    torch.testing.assert_close(sparse, dense)
    assert bool((coefficients_TK >= 0).all())
    for found, wanted in zip(gradients(sparse, inputs, upstream), gradients(dense, inputs, upstream), strict=True):
        torch.testing.assert_close(found, wanted)


def test_hot_expert_and_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "PAIRS_PER_CHUNK", 8)
    table = torch.randn(30, 6, dtype=torch.float64, requires_grad=True)
    coefficients = torch.rand(50, 4, dtype=torch.float64, requires_grad=True)
    indices = torch.randint(0, 30, (50, 4))
    indices[:, 0] = 7
    dense = (coefficients.unsqueeze(2) * table[indices]).sum(dim=1)
    sparse = kernels.mix(coefficients, indices, table)
    torch.testing.assert_close(sparse, dense)
    upstream = torch.randn_like(dense)
    for found, wanted in zip(
        gradients(sparse, [coefficients, table], upstream),
        gradients(dense, [coefficients, table], upstream),
        strict=True,
    ):
        torch.testing.assert_close(found, wanted)


def test_two_runs_give_the_same_bits() -> None:
    torch.manual_seed(0)
    x, weight, bias, table = torch.randn(64, 16), torch.randn(99, 16), torch.randn(99), torch.randn(99, 16)

    def once() -> list[Tensor]:
        inputs = [value.clone().requires_grad_() for value in (x, weight, bias, table)]
        coefficients_TK, indices_TK = kernels.gate(inputs[0], inputs[1], inputs[2], 8)
        return gradients(kernels.mix(coefficients_TK, indices_TK, inputs[3]), inputs, torch.ones(64, 16))

    assert all(torch.equal(a, b) for a, b in zip(once(), once(), strict=True))
