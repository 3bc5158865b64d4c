"""How fast a device multiplies matrices and moves bytes, measured in about a second, and what room it has.

Shapes: R rows, I inner width, C columns of a product [R, I] x [I, C].
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import torch

SECONDS_EACH = 0.2
MOST_COLUMNS = 4096
"""More make a product no faster, only longer."""
STREAMED = 1 << 24
"""Float32 numbers of each of three arrays, 64 MB each: more than caches hold."""
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current"))


@dataclass(frozen=True)
class Product:
    """A matrix product whose rate is wanted."""

    rows: int
    inner: int
    columns: int
    dtype: torch.dtype

    @property
    def flops(self) -> int:
        """Two for a multiplication with its addition."""
        return 2 * self.rows * self.inner * self.columns


@dataclass(frozen=True)
class Rates:
    """What was measured of a device."""

    products: dict[Product, float]
    """FLOP a second."""
    bytes_per_second: float
    """Read and written, of arrays that no cache holds."""


def measure(products: Iterable[Product], device: torch.device, clock: Callable[[], float] | None = None) -> Rates:
    """Time each product, with as many columns as it has up to ``MOST_COLUMNS``, and a sum of arrays.

    Args:
        products: each is measured once.
        device: where.
        clock: gives seconds; by default those that pass.
    """
    clock = clock or time.perf_counter
    return Rates({product: _product_rate(product, device, clock) for product in products}, _stream_rate(device, clock))


@torch.inference_mode()
def _product_rate(product: Product, device: torch.device, clock: Callable[[], float]) -> float:
    columns = min(product.columns, MOST_COLUMNS)
    x_RI = torch.randn(product.rows, product.inner, device=device).to(product.dtype)
    weight_CI = torch.randn(columns, product.inner, device=device).to(product.dtype)
    made_RC = torch.empty(product.rows, columns, device=device, dtype=product.dtype)
    seconds = _median_seconds(lambda: torch.mm(x_RI, weight_CI.T, out=made_RC), device, clock)
    return replace(product, columns=columns).flops / seconds


@torch.inference_mode()
def _stream_rate(device: torch.device, clock: Callable[[], float]) -> float:
    one, other, total = (torch.ones(STREAMED, device=device) for _ in range(3))
    return 3 * 4 * STREAMED / _median_seconds(lambda: torch.add(one, other, out=total), device, clock)


def _median_seconds(work: Callable[[], object], device: torch.device, clock: Callable[[], float]) -> float:
    """Of the calls that fit into ``SECONDS_EACH``; the first, which warms up, is not counted."""
    taken: list[float] = []
    begun = clock()
    while len(taken) < 3 or clock() - begun < SECONDS_EACH:
        started = clock()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(clock() - started)
    return statistics.median(taken[1:])


def free_bytes(device: torch.device) -> int:
    """What can still be had of a device's memory: of a GPU's own, else of main memory."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = int(psutil.virtual_memory().available)
    left = _free_in_group()
    return free if left is None else min(free, left)


def _free_in_group() -> int | None:
    """What a container's limit leaves."""
    if not all(path.is_file() for path in _LIMITS):
        return None
    most, used = (path.read_text().strip() for path in _LIMITS)
    return int(most) - int(used) if most.isdigit() else None


def resident_bytes() -> int:
    """What this process has in memory."""
    return int(psutil.Process().memory_info().rss)


def device_name(device: torch.device) -> str:
    """What to call it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"
