"""The kernels compute the same products, follow changed weights, and stay within their memory."""

import platform
from contextlib import ExitStack

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from mxd.trainer.evaluation.jacobians import load_forward_derivatives
from mxd.trainer.language_model import mlp_hooks
from mxd.trainer.language_model.mlp_hooks import LinearKernels

WIDTH = 384


@pytest.fixture(autouse=True)
def x86(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use packed weights whatever the processor."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


def module() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)).requires_grad_(False)


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
    assert all((each._packed is not None) == bool(x.numel()) for each in kernels._linears)


def test_forward_derivatives_are_kept() -> None:
    load_forward_derivatives()
    linears, x, direction = module(), torch.randn(8, WIDTH), torch.randn(8, WIDTH)
    with ExitStack() as stack, forward_ad.dual_level():
        LinearKernels(linears).apply(stack)
        tangent: Tensor | None = forward_ad.unpack_dual(linears(forward_ad.make_dual(x, direction))).tangent
    assert tangent is not None
    first, _, second = linears.parameters()
    torch.testing.assert_close(tangent, direction @ first.T @ second.T)


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


def test_without_memory_for_all_copies_the_first_modules_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is computed first: otherwise, results would depend on earlier requests."""
    monkeypatch.setattr(mlp_hooks, "PACKED_BYTES", 4 * WIDTH * WIDTH)
    linears, x = module(), torch.randn(8, WIDTH)
    kernels = LinearKernels(linears)
    assert [each.module for each in kernels._linears] == [linears[0]]
    with ExitStack() as stack:
        kernels.apply(stack)
        linears[1](x)
        actual = linears(x)
    torch.testing.assert_close(actual, linears(x), rtol=1e-4, atol=1e-5)


def test_small_and_reduced_weights_and_other_processors_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not LinearKernels(nn.Linear(8, 8))._linears
    assert not LinearKernels(module().bfloat16())._linears
    assert len(LinearKernels(module())._linears) == 2
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert not LinearKernels(module())._linears
