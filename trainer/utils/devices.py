"""Compute devices: the CPU, and whatever accelerator PyTorch has (CUDA, ROCm, XPU or Apple's MPS).

What PyTorch's backends do not have in common is here and nowhere else. MPS has no float64 and no decompositions, so
results are copied to the CPU before they become float64, and decompositions run there.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from mxd.trainer.errors import UserError

KNOWN = "auto, auto-map, cpu, cuda, xpu, mps, or the number of a device as in cuda:1"


class DeviceMemory(NamedTuple):
    free: int
    total: int


def accelerator() -> torch.device | None:
    """The accelerator that PyTorch uses on this machine, without an index; None if there is none."""
    return torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None


def named_device(name: str) -> torch.device:
    """The device of this name. Raises UserError if there is no such device."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"Unknown device: '{name}'. Allowed: {KNOWN}.") from None
    if device.type == "cpu":
        return device
    backend = getattr(torch, device.type, None)
    present = accelerator()
    if backend is None or not (present == torch.device(device.type) or getattr(backend, "is_available", bool)()):
        found = "no accelerator" if present is None else f"'{present.type}'"
        raise UserError(f"Device not available: '{name}'. PyTorch finds {found} here. Use --device=auto or cpu.")
    count = backend.device_count()
    if (device.index or 0) >= count:
        names = ", ".join(f"{device.type}:{index}" for index in range(count))
        raise UserError(f"Device not available: '{name}'. This machine has {names}.")
    return device


def device_name(device: torch.device) -> str:
    if device.type == "cpu":
        return f"CPU, {torch.get_num_threads()} threads"
    named: Any = getattr(getattr(torch, device.type), "get_device_name", None)
    return str(named(device)) if named is not None else f"Apple GPU ({device.type.upper()})"


def device_memory(device: torch.device) -> DeviceMemory | None:
    """Memory of an accelerator; None for the CPU. MPS shares main memory, of which it recommends a maximum."""
    if device.type == "cpu":
        return None
    if device.type == "mps":
        total = torch.mps.recommended_max_memory()
        return DeviceMemory(total - torch.mps.driver_allocated_memory(), total)
    return DeviceMemory(*map(int, getattr(torch, device.type).mem_get_info(device)))


def in_float64(values: Tensor) -> Tensor:
    """The values in float64; on the CPU if their device may have no float64, as MPS and some Intel GPUs."""
    return values.double() if values.device.type in ("cpu", "cuda") else values.cpu().double()


def synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()


def free_cached_memory() -> None:
    """Return the memory that PyTorch's allocator keeps to the accelerator. Tensors in the frames of an exception are in
    use until its handler has ended."""
    if (present := accelerator()) is not None:
        getattr(torch, present.type).empty_cache()
