"""The kernels compute the same products, follow changed weights, and stay within their memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from mxd.trainer.evaluation.jacobians import load_forward_derivatives
from mxd.trainer.language_model import linear_kernels
from mxd.trainer.language_model.linear_kernels import LinearKernels, pack, packed_product

WIDTH = 384


@pytest.fixture
def packed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use packed weights wherever possible, whatever is faster on this machine."""
    monkeypatch.setattr(LinearKernels, "is_packing_faster", lambda *_: True)


def module() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)).requires_grad_(False)


@pytest.mark.usefixtures("packed_only")
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (2, 2), (5,), (3, 70), (1025,), (0,)])
def test_products_equal_those_of_the_module(shape: tuple[int, ...]) -> None:
    linears = module()
    x = torch.randn(*shape, WIDTH)
    expected = linears(x)
    kernels = LinearKernels(linears)
    with ExitStack() as stack:
        kernels.apply(stack)
        actual = linears(x)
    assert actual.shape == expected.shape
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    assert "forward" not in vars(linears[0])
    is_packed = kernels.bytes_left < linear_kernels.PACKED_BYTES
    assert is_packed == bool(x.numel())


@pytest.mark.usefixtures("packed_only")
def test_forward_derivatives_are_kept() -> None:
    load_forward_derivatives()
    linears, x, direction = module(), torch.randn(8, WIDTH), torch.randn(8, WIDTH)
    with ExitStack() as stack, forward_ad.dual_level():
        LinearKernels(linears).apply(stack)
        tangent: Tensor | None = forward_ad.unpack_dual(linears(forward_ad.make_dual(x, direction))).tangent
    assert tangent is not None
    first, _, second = linears.parameters()
    torch.testing.assert_close(tangent, direction @ first.T @ second.T)


@pytest.mark.usefixtures("packed_only")
def test_changed_weights_are_packed_again() -> None:
    linears, x = module(), torch.randn(8, WIDTH)
    kernels = LinearKernels(linears)
    for _ in range(2):
        with ExitStack() as stack:
            kernels.apply(stack)
            torch.testing.assert_close(linears(x), linears[1](linears[0](x)), rtol=1e-4, atol=1e-5)
            actual = linears(x)
        torch.testing.assert_close(actual, linears(x), rtol=1e-4, atol=1e-5)
        next(linears.parameters()).mul_(2)


@pytest.mark.usefixtures("packed_only")
def test_without_memory_for_a_copy_the_module_computes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_kernels, "PACKED_BYTES", 4 * WIDTH * WIDTH)
    linears, x = module(), torch.randn(8, WIDTH)
    kernels = LinearKernels(linears)
    with ExitStack() as stack:
        kernels.apply(stack)
        actual = linears(x)
    torch.testing.assert_close(actual, linears(x), rtol=1e-4, atol=1e-5)
    assert kernels.bytes_left == 0


def test_the_faster_kernel_is_chosen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[int] = []

    def is_packing_faster(weights: Sequence[Tensor], rows: int) -> bool:
        timed.append(rows)
        return actual(weights, rows)

    actual = linear_kernels._is_packing_faster
    monkeypatch.setattr(linear_kernels, "_is_packing_faster", is_packing_faster)
    linears = module()
    kernels = LinearKernels(linears)
    choices = [kernels.is_packing_faster(rows) for rows in (1, 2, 3, 32, 33, 64, 2000, 4000)]
    assert timed == [1, 4, 64, 1024]
    assert choices[1] == choices[3]
    assert choices[4:] == [kernels.is_packing_faster(rows) for rows in (33, 64, 2000, 4000)]


@pytest.mark.parametrize("packed", [0.5, 2.0])
def test_packed_weights_are_used_where_they_take_less_time(packed: float, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([1.0, packed] * linear_kernels.REPEATS)
    monkeypatch.setattr(linear_kernels, "_seconds", lambda _kernel: next(seconds))
    assert LinearKernels(module()).is_packing_faster(4) == (packed < 1)


def test_a_packed_product_with_bias() -> None:
    linear, x = nn.Linear(WIDTH, WIDTH).requires_grad_(False), torch.randn(4, WIDTH)
    actual = packed_product(x, pack(linear.weight), linear.bias)
    torch.testing.assert_close(actual, linear(x), rtol=1e-4, atol=1e-5)


def test_small_and_reduced_weights_are_left_alone() -> None:
    assert not LinearKernels(nn.Linear(8, 8))._linears
    assert not LinearKernels(module().bfloat16())._linears
    assert len(LinearKernels(module())._linears) == 2
