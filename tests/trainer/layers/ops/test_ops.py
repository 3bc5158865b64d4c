"""Sparse operations (PyTorch and Triton) against dense products, forward and backward, for irregular sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mxd.trainer.layers import ops as kernels
from mxd.trainer.layers.ops import torch_ops, triton_ops

OPS = pytest.mark.parametrize("ops", [torch_ops, triton_ops], ids=["torch", "triton"])


@contextmanager
def using(ops: ModuleType, **sizes: int) -> Iterator[None]:
    """Use these operations, with these block sizes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "ops_for", lambda _tensor: ops)
        for name, size in sizes.items():
            patch.setattr(torch_ops, name, size)
        yield


def dense_gate(x_TI: Tensor, weight_NI: Tensor, bias_N: Tensor, k: int) -> tuple[Tensor, Tensor]:
    scores_TN = torch.relu(x_TI @ weight_NI.T + bias_N)
    top = scores_TN.topk(k, dim=1)
    return torch.zeros_like(scores_TN).scatter(1, top.indices, top.values), top.indices


def gradients(output: Tensor, inputs: list[Tensor], upstream: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad((output * upstream).sum(), inputs))


def assert_equal_to_dense(inputs: list[Tensor], k: int) -> None:
    """Check outputs and all gradients of gate and mixing against the dense form."""
    x, weight, bias, table = inputs
    upstream = torch.randn(len(x), table.shape[1], generator=torch.Generator().manual_seed(1), dtype=x.dtype)
    coefficients_TK, indices_TK = kernels.gate(x, weight, bias, k)
    sparse = kernels.mix(coefficients_TK, indices_TK, table)
    dense_TN, _ = dense_gate(x, weight, bias, k)
    dense = dense_TN @ table
    relative, absolute = (1e-4, 1e-5) if x.dtype == torch.float32 else (1e-7, 1e-7)
    torch.testing.assert_close(sparse, dense, rtol=relative, atol=absolute)
    assert bool((coefficients_TK >= 0).all())
    assert bool((coefficients_TK.diff(dim=1) <= 0).all())
    for actual, expected in zip(gradients(sparse, inputs, upstream), gradients(dense, inputs, upstream), strict=True):
        torch.testing.assert_close(actual, expected, rtol=relative, atol=absolute)


def random_inputs(
    tokens: int, num_experts: int, widths: tuple[int, int], shift: float, seed: int, dtype: torch.dtype
) -> list[Tensor]:
    """x, gate weights, gate bias and table; a ``shift`` below zero leaves fewer than K scores positive."""
    generator = torch.Generator().manual_seed(seed)

    def values(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    made = [values(tokens, widths[0]), values(num_experts, widths[0]), values(num_experts) + shift]
    return [value.to(dtype).requires_grad_() for value in (*made, values(num_experts, widths[1]))]


@settings(max_examples=40, deadline=None)
@given(
    tokens=st.integers(1, 40),
    num_experts=st.integers(1, 61),
    k=st.integers(1, 12),
    shift=st.sampled_from([-8.0, -1.0, 0.0, 3.0]),
    seed=st.integers(0, 10_000),
    block=st.sampled_from([1, 7, 64, 1 << 22]),
    rows=st.sampled_from([1, 8, 1 << 10]),
)
def test_gate_and_mix_equal_the_dense_form(
    tokens: int, num_experts: int, k: int, shift: float, seed: int, block: int, rows: int
) -> None:
    inputs = random_inputs(tokens, num_experts, (7, 9), shift, seed, torch.float64)
    with using(torch_ops, SCORES_AT_A_TIME=block, MIN_TOKENS_AT_A_TIME=rows, PAIRS_AT_A_TIME=rows):
        assert_equal_to_dense(inputs, min(k, num_experts))


@settings(max_examples=5, deadline=None)
@given(
    tokens=st.integers(1, 3),
    num_experts=st.integers(1, 11),
    k=st.integers(1, 34),
    widths=st.sampled_from([(7, 9), (130, 3), (2, 129)]),
    shift=st.sampled_from([-2.0, 0.0, 3.0]),
    seed=st.integers(0, 10_000),
)
def test_triton_equals_the_dense_form(
    tokens: int, num_experts: int, k: int, widths: tuple[int, int], shift: float, seed: int
) -> None:
    inputs = random_inputs(tokens, num_experts, widths, shift, seed, torch.float32)
    with using(triton_ops):
        assert_equal_to_dense(inputs, min(k, num_experts))


def test_the_papers_number_of_experts() -> None:
    """21,490 is divisible by neither 4 nor 8 nor any block."""
    with using(torch_ops, SCORES_AT_A_TIME=1 << 12):
        assert_equal_to_dense(random_inputs(33, 21_490, (8, 8), -1.0, 0, torch.float64), 32)


def test_blocks_of_scores_are_rounded_under_autocast_like_all_scores_at_once() -> None:
    x_TI, weight_NI, bias_N, _ = random_inputs(40, 300, (64, 8), 0.0, 0, torch.float32)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        whole, _ = kernels.gate(x_TI, weight_NI, bias_N, 5)
        with using(torch_ops, SCORES_AT_A_TIME=1, MIN_TOKENS_AT_A_TIME=8):
            blocks, _ = kernels.gate(x_TI, weight_NI, bias_N, 5)
    assert torch.equal(blocks, whole)
    assert torch.equal(blocks, blocks.bfloat16().float())


@OPS
def test_experts_active_on_every_token_and_repeated_experts(ops: ModuleType) -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(9, 6, generator=generator).requires_grad_()
    coefficients = torch.rand(40, 4, generator=generator).requires_grad_()
    indices = torch.randint(0, 9, (40, 4), generator=generator)
    indices[:, :2] = 7
    dense = (coefficients.unsqueeze(2) * table[indices]).sum(dim=1)
    with using(ops, PAIRS_AT_A_TIME=8):
        sparse = kernels.mix(coefficients, indices, table)
        upstream = torch.randn(40, 6, generator=generator)
        actual = gradients(sparse, [coefficients, table], upstream)
    torch.testing.assert_close(sparse, dense)
    for one, expected in zip(actual, gradients(dense, [coefficients, table], upstream), strict=True):
        torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-5)


@OPS
def test_results_are_deterministic(ops: ModuleType) -> None:
    inputs = random_inputs(3, 11, (8, 8), 0.0, 0, torch.float32)

    def once() -> list[Tensor]:
        coefficients_TK, indices_TK = kernels.gate(inputs[0], inputs[1], inputs[2], 4)
        return gradients(kernels.mix(coefficients_TK, indices_TK, inputs[3]), inputs, torch.ones(3, 8))

    with using(ops):
        assert all(torch.equal(a, b) for a, b in zip(once(), once(), strict=True))


def test_bfloat16_scores_select_and_are_recomputed_in_float32() -> None:
    x, weight, bias, _ = (value.detach() for value in random_inputs(9, 50, (32, 1), 0.0, 0, torch.float32))
    with torch.autocast("cpu", torch.bfloat16):
        values_TK, indices_TK = triton_ops.largest_scores(x, weight, bias, 4)
    exact_TN = x @ weight.T + bias
    torch.testing.assert_close(values_TK, exact_TN.gather(1, indices_TK))
    assert bool((values_TK.diff(dim=1) <= 0).all())
    # A choice may be wrong by what bfloat16 rounds, and no more.
    assert bool((values_TK[:, -1] > 0.97 * exact_TN.topk(4, dim=1).values[:, -1] - 0.1).all())


def test_no_tensor_of_size_t_by_n_is_saved_for_backward() -> None:
    inputs = random_inputs(64, 999, (8, 8), 0.0, 0, torch.float32)
    kept: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        coefficients_TK, indices_TK = kernels.gate(inputs[0], inputs[1], inputs[2], 4)
        kernels.mix(coefficients_TK, indices_TK, inputs[3])
    assert max(kept) == 999 * 8
