"""The pretend device must refuse what CUDA refuses: otherwise the walks would pass whatever the program does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import functional as F

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
