"""The pretend device itself: what it refuses and allows, as CUDA does."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad
from torch.nn import functional as F

from tests.devices import pretend_device
from tests.devices.pretend_device import DeviceMismatchError, recording

SIM = torch.device("sim", 0)


def on_sim(*shape: int) -> torch.Tensor:
    return torch.randn(shape).to(SIM)


def cpu_value_in_a_hook() -> None:
    doubled = on_sim(3).requires_grad_() * 2
    doubled.register_hook(lambda gradient: gradient + torch.ones(3))
    doubled.sum().backward()


REFUSED: dict[str, Callable[[], object]] = {
    "sum with a CPU tensor": lambda: on_sim(3) + torch.ones(3),
    "product with a CPU matrix": lambda: torch.ones(3, 3) @ on_sim(3, 3),
    "cat with a CPU tensor": lambda: torch.cat([on_sim(3), torch.ones(3)]),
    "stack with a CPU number": lambda: torch.stack([on_sim(), torch.tensor(1.0)]),
    "gather at CPU positions": lambda: on_sim(3).gather(0, torch.tensor([1])),
    "index_select with a CPU index": lambda: on_sim(3).index_select(0, torch.tensor([1])),
    "device index into a CPU tensor": lambda: torch.ones(3)[torch.tensor([1]).to(SIM)],
    "CPU values at an index": lambda: on_sim(3).index_put_((torch.tensor([0, 1]),), torch.ones(2)),
    "device number added to a CPU number": lambda: torch.tensor(0.0).add_(on_sim()),
    "two devices": lambda: on_sim(3) + torch.ones(3, device="sim:1"),
    "two devices, numbers": lambda: on_sim() + torch.ones((), device="sim:1"),
    "CPU generator": lambda: torch.randn(3, device=SIM, generator=torch.Generator()),
    "CPU tensor in a backward pass": cpu_value_in_a_hook,
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_two_devices(case: str) -> None:
    with pytest.raises(DeviceMismatchError):
        REFUSED[case]()


def test_refuses_numpy_and_two_dtypes() -> None:
    conversions: tuple[Callable[[], object], ...] = (lambda: on_sim(3).numpy(), lambda: np.asarray(on_sim(3)))
    for convert in conversions:
        with pytest.raises(TypeError, match="numpy"):
            convert()
    with pytest.raises(RuntimeError, match="dtype"):
        F.linear(on_sim(3, 3).bfloat16(), on_sim(3, 3))


def attention(x_BHTD: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x_BHTD, x_BHTD, x_BHTD, is_causal=True)


ALLOWED: dict[str, Callable[[], object]] = {
    "CPU number": lambda: on_sim(3) * torch.tensor(2.0),
    "CPU index": lambda: on_sim(3)[torch.tensor([0, 2])],
    "CPU number in where": lambda: torch.where(on_sim(3) > 0, torch.tensor(1.0), 0.0),
    "assignment from the CPU": lambda: on_sim(3, 2)[0].copy_(torch.ones(2)),
    "copy between devices": lambda: on_sim(3).to("sim:1") + torch.ones(3, device="sim:1"),
    "numbers": lambda: (on_sim().item(), on_sim(2).tolist(), bool((on_sim(2) > 9).any())),
    "tensor of numbers": lambda: torch.tensor([on_sim(), on_sim()]),
    "attention": lambda: attention(on_sim(1, 2, 4, 8)),
    "vmap of a gradient": lambda: torch.vmap(torch.func.grad(lambda x: x.square().sum()))(on_sim(3, 2)),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_allows(case: str) -> None:
    ALLOWED[case]()


def test_a_module_trains_on_the_device() -> None:
    layer = torch.nn.Linear(4, 4).to(SIM)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1, fused=True)
    twin = torch.nn.Linear(4, 4)
    twin.load_state_dict(layer.state_dict())
    twin_optimizer = torch.optim.AdamW(twin.parameters(), lr=0.1, fused=True)
    x = torch.randn(5, 4)
    for _ in range(3):
        for module, steps, given in ((layer, optimizer, x.to(SIM)), (twin, twin_optimizer, x)):
            module(given).square().sum().backward()
            steps.step()
            steps.zero_grad()
    assert layer.weight.device == SIM
    torch.testing.assert_close(layer.weight.detach().cpu(), twin.weight.detach())
    copied = copy.deepcopy(layer)
    assert isinstance(copied.weight, torch.nn.Parameter)
    assert copied.weight.device == SIM
    assert bool((copied.weight == layer.weight).all())


def test_a_module_changes_its_dtype_on_the_device() -> None:
    layer = torch.nn.Linear(4, 4).to(SIM, torch.bfloat16).float()
    assert layer(on_sim(2, 4)).dtype == torch.float32


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
def test_forward_derivatives_are_those_of_the_cpu() -> None:
    x, tangent, weight = torch.randn(3, 4), torch.randn(3, 4), torch.randn(5, 4)

    def derivative(x: torch.Tensor, tangent: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        with forward_ad.dual_level():
            result = F.gelu(F.linear(forward_ad.make_dual(x, tangent), weight))
            changed: torch.Tensor = forward_ad.unpack_dual(result).tangent
            return changed

    there = derivative(x.to(SIM), tangent.to(SIM), weight.to(SIM))
    assert there.device == SIM
    torch.testing.assert_close(there.cpu(), derivative(x, tangent, weight))


def test_autocast_rounds_the_inputs_of_products_alone() -> None:
    x, y = torch.randn(3, 4), torch.randn(4, 5)
    left, right = x.to(SIM).requires_grad_(), y.to(SIM)
    with torch.autocast("sim", torch.bfloat16):
        product = left @ right
        assert (left * 2).dtype == torch.float32
    assert product.dtype == torch.bfloat16
    torch.testing.assert_close(product.detach().cpu(), x.bfloat16() @ y.bfloat16())
    product.float().sum().backward()
    assert left.grad is not None
    torch.testing.assert_close(left.grad.cpu(), y.bfloat16().sum(dim=1).float().expand(3, 4), rtol=0.02, atol=0.02)


def test_a_backward_pass_crosses_devices() -> None:
    leaf = torch.ones(3, device="sim:1", requires_grad=True)
    (leaf.to(SIM) * on_sim(3)).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.device == torch.device("sim", 1)


def test_weights_moved_in_inference_mode_are_inference_tensors() -> None:
    layer = torch.nn.Linear(2, 2)
    with torch.inference_mode():
        layer.to(SIM)
    assert layer.weight.is_inference()


@pytest.fixture
def without_float64() -> Iterator[None]:
    pretend_device.install(devices=2, float64=False)
    yield
    pretend_device.install(devices=2)


@pytest.mark.usefixtures("without_float64")
def test_float64_can_be_missing() -> None:
    with pytest.raises(TypeError, match="float64"):
        on_sim(3).double()


def test_records_waits_with_their_lines() -> None:
    values = on_sim(4)
    with recording("tests/devices/") as record:
        (values + 1).sum()  # no wait
        values.sum().item()
        values[values > 0]
        values.cpu()
        values.copy_(torch.ones(4))
    assert [wait.partition(" walk_device")[0] for wait in record.waits] == [
        "_local_scalar_dense",
        "mask as an index",
        "copy to the CPU",
        "copy to the device",
    ]
