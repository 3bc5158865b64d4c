"""Sparse operations (PyTorch and Triton) against dense products; kernels compiled for GPUs that are not here."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from unittest.mock import Mock

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from triton.errors import TritonError

from benchmarks.gpu.compiled import DTYPES, TARGETS, kernel_forms
from mxd.trainer.layers import ops as kernels
from mxd.trainer.layers import triton_ops
from mxd.trainer.layers.ops import pairs_by_expert
from tests.helpers.processes import ROOT

OPS = pytest.mark.parametrize("ops", [kernels, triton_ops], ids=["torch", "triton"])


@contextmanager
def using(ops: ModuleType, **sizes: int) -> Iterator[None]:
    """Use these operations, with these block sizes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "ops_for", lambda _tensor: ops)
        for name, size in sizes.items():
            patch.setattr(kernels, name, size)
        yield


def gradients(output: Tensor, inputs: list[Tensor], upstream: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad((output * upstream).sum(), inputs))


def assert_equal_to_dense(inputs: list[Tensor], k: int) -> None:
    """Check outputs and all gradients of gate and mixing against the dense form."""
    x, weight, bias, table = inputs
    upstream = torch.randn(len(x), table.shape[1], generator=torch.Generator().manual_seed(1), dtype=x.dtype)
    activations_TK, indices_TK = kernels.gate(x, weight, bias, k)
    sparse = kernels.mix(activations_TK, indices_TK, table)
    scores_TN = torch.relu(x @ weight.T + bias)
    top = scores_TN.topk(k, dim=1)
    dense = torch.zeros_like(scores_TN).scatter(1, top.indices, top.values) @ table
    relative, absolute = (1e-4, 1e-5) if x.dtype == torch.float32 else (1e-7, 1e-7)
    torch.testing.assert_close(sparse, dense, rtol=relative, atol=absolute)
    assert bool((activations_TK >= 0).all())
    assert bool((activations_TK.diff(dim=1) <= 0).all())
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
@example(tokens=0, num_experts=1, k=1, shift=0.0, seed=0, block=1, rows=1)
def test_gate_and_mix_equal_the_dense_form(
    tokens: int, num_experts: int, k: int, shift: float, seed: int, block: int, rows: int
) -> None:
    inputs = random_inputs(tokens, num_experts, (7, 9), shift, seed, torch.float64)
    with using(kernels, SCORES_AT_A_TIME=block, MIN_TOKENS_AT_A_TIME=rows, PAIRS_AT_A_TIME=rows):
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
@example(tokens=0, num_experts=5, k=3, widths=(7, 9), shift=0.0, seed=0)
@example(tokens=3, num_experts=1, k=1, widths=(7, 9), shift=0.0, seed=0)
def test_triton_equals_the_dense_form(
    tokens: int, num_experts: int, k: int, widths: tuple[int, int], shift: float, seed: int
) -> None:
    inputs = random_inputs(tokens, num_experts, widths, shift, seed, torch.float32)
    with using(triton_ops):
        assert_equal_to_dense(inputs, min(k, num_experts))


def test_blocks_of_scores_are_rounded_under_autocast_like_all_scores_at_once() -> None:
    x_TI, weight_NI, bias_N, _ = random_inputs(40, 300, (64, 8), 0.0, 0, torch.float32)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        whole, _ = kernels.gate(x_TI, weight_NI, bias_N, 5)
        with using(kernels, SCORES_AT_A_TIME=1, MIN_TOKENS_AT_A_TIME=8):
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
        activations_TK, indices_TK = kernels.gate(inputs[0], inputs[1], inputs[2], 4)
        kernels.mix(activations_TK, indices_TK, inputs[3])
    assert max(kept) == 999 * 8


@settings(max_examples=30, deadline=None)
@given(
    tokens=st.integers(0, 5),
    num_experts=st.integers(4096, 9000),
    k=st.integers(1, 40),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    seed=st.integers(0, 10_000),
)
def test_blocked_topk_finds_the_largest_scores(
    tokens: int, num_experts: int, k: int, dtype: torch.dtype, seed: int
) -> None:
    """In bfloat16 there are many ties, so values are compared, and ids only as places of these values."""
    scores_TN = torch.randn(tokens, num_experts, generator=torch.Generator().manual_seed(seed)).to(dtype)
    values_TK, ids_TK = triton_ops.blocked_topk(scores_TN, k)
    assert torch.equal(values_TK, scores_TN.topk(k, dim=1).values)
    assert torch.equal(values_TK, scores_TN.gather(1, ids_TK))
    assert all(len(set(ids)) == k for ids in ids_TK.tolist())


def test_a_block_of_scores_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, bias, _ = (value.detach() for value in random_inputs(9, 50, (32, 1), 0.0, 0, torch.float32))
    whole = triton_ops.largest_scores(x, weight, bias, 4)
    monkeypatch.setattr(triton_ops, "GPU_SCORES", 100)  # two tokens
    for part, expected in zip(triton_ops.largest_scores(x, weight, bias, 4), whole, strict=True):
        torch.testing.assert_close(part, expected)


@OPS
def test_sums_by_expert_with_half_precision_and_both_types_of_ids(ops: ModuleType) -> None:
    generator = torch.Generator().manual_seed(0)
    rows, weights = torch.randn(40, 24, generator=generator), torch.rand(40, 4, generator=generator)
    indices = torch.randint(0, 9, (40, 4), generator=generator)
    one_hot_TKN = torch.nn.functional.one_hot(indices, 12).double()
    weights_TN = (one_hot_TKN * weights.unsqueeze(2)).sum(dim=1)
    for ids in (indices, indices.int()):
        sums_NW, totals_N = ops.sum_by_expert(rows, weights, pairs_by_expert(ids, 12))
        torch.testing.assert_close(sums_NW, (weights_TN.T @ rows.double()).float())
        torch.testing.assert_close(totals_N, weights_TN.sum(dim=0).float())
        assert not sums_NW[9:].any()  # experts without tokens
    halves = triton_ops.sum_by_expert(rows.bfloat16(), weights.bfloat16(), pairs_by_expert(indices, 12))
    torch.testing.assert_close(halves[0].double(), weights_TN.T @ rows.double(), rtol=0.02, atol=0.1)


def test_float64_is_not_left_to_kernels_that_sum_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "ops_on", lambda _device: triton_ops)
    assert kernels.ops_for(torch.zeros(1)) is triton_ops
    assert kernels.ops_for(torch.zeros(1, dtype=torch.float64)) is kernels


@pytest.mark.parametrize(
    ("values", "ids", "table", "message"),
    [
        (torch.ones(2, 3, device="meta"), torch.zeros(2, 3).long(), torch.ones(5, 8), "one device, .* meta, cpu and"),
        (torch.ones(2, 3), torch.zeros(2, 3), torch.ones(5, 8), "int32 or int64, but are torch.float32"),
        (torch.ones(2, 3), torch.zeros(2, 3).long(), torch.ones(5, 8).double(), "do not take torch.float64"),
        (torch.ones(3, 3), torch.zeros(2, 3).long(), torch.ones(5, 8), r"the shapes are \(3, 3\), \(2, 3\), \(5, 8\)"),
        (torch.ones(2, 3), torch.zeros(2, 3).long(), torch.ones(5), r"shapes are .* \(5,\)"),
    ],
)
def test_kernels_check_what_they_require(values: Tensor, ids: Tensor, table: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        triton_ops.mix_rows(values, ids, table)
    with pytest.raises(ValueError, match="one width, but have 9 and 8"):
        triton_ops.row_dots(torch.ones(2, 9), torch.ones(5, 8), torch.zeros(2, 3).long())


def test_tables_that_are_not_contiguous() -> None:
    table = torch.arange(40.0).view(8, 5).T  # [5, 8]
    weights, ids = torch.ones(3, 2).T, torch.tensor([[0, 1, 2], [4, 4, 3]])
    assert torch.equal(triton_ops.mix_rows(weights, ids, table), kernels.mix_rows(weights, ids, table.contiguous()))


CPU = torch.device("cpu")


@pytest.mark.parametrize("error", [RuntimeError("Failed to find C compiler."), TritonError("ptxas"), OSError("gcc")])
def test_kernels_that_cannot_be_compiled_are_replaced(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_with(error: Exception) -> None:
        kernels.compiled_ops.cache_clear()
        monkeypatch.setattr(triton_ops, "mix_rows", Mock(side_effect=error))

    kernels.compiled_ops.cache_clear()
    assert kernels.compiled_ops(CPU) is triton_ops
    fails_with(error)
    with pytest.warns(UserWarning, match="GPU kernels cannot be compiled.*Install a C compiler"):
        assert kernels.compiled_ops(CPU) is kernels
    assert kernels.compiled_ops(CPU) is kernels  # without another warning
    fails_with(torch.OutOfMemoryError("CUDA out of memory"))  # which is no reason for slower operations
    with pytest.raises(torch.OutOfMemoryError):
        kernels.compiled_ops(CPU)
    kernels.compiled_ops.cache_clear()


SMALLEST_SHARED_MEMORY = 48 << 10
"""Bytes that a program may use on every target without asking for more."""
MOST_REGISTERS = 128
"""Registers per thread with which 16 warps still fit on a multiprocessor."""


def test_every_form_compiles_for_every_target_within_its_limits() -> None:
    """Every form of every kernel for Llama-3.2-3B's width. This process has the kernels for the interpreter."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("TRITON_INTERPRET")
    command = [sys.executable, "-m", "benchmarks.gpu.compiled", "3072"]
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert finished.returncode == 0, finished.stderr
    rows = json.loads(finished.stdout)
    expected = {(target, form.name, dtype) for target in TARGETS for dtype in DTYPES for form in kernel_forms(3072)}
    assert {(row["target"], row["kernel"], row["dtype"]) for row in rows} == expected
    assert {name.partition("[")[2] for _, name, _ in expected} == {"i32]", "i64]"}
    assert {row["spilled_bytes"] for row in rows} == {0}
    assert all(0 < row["registers"] <= MOST_REGISTERS for row in rows)
    assert max(row["shared_bytes"] for row in rows) <= SMALLEST_SHARED_MEMORY
    # Row numbers are multiplied by the width, and tokens by K, in 64 bits.
    assert {product for row in rows for product in row["narrow_products"]} == set()
