"""Rates and memory of the local device, measured in about a second.

Shapes: I inner width, R rows, C columns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psutil
import torch

from mxd.trainer.utils.devices import device_memory, synchronize

SECONDS_EACH = 0.2
MAX_COLUMNS = 4096
"""Number of columns that suffices to measure the rate of a wider product."""
STREAM_SIZE = 1 << 24
"""Float32 elements per array in the bandwidth test. 64 MB exceed the caches."""
_CGROUP_FILES = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current"))


@dataclass(frozen=True)
class Product:
    """Shape and dtype of a matrix product."""

    rows: int
    inner: int
    columns: int
    dtype: torch.dtype

    @property
    def flops(self) -> int:
        """FLOPs, counting a multiply-add as two."""
        return 2 * self.rows * self.inner * self.columns


@dataclass(frozen=True)
class DeviceRates:
    """Measured speed of a device."""

    products: dict[Product, float]
    """FLOP/s by product."""
    bytes_per_second: float
    """Memory bandwidth, reads plus writes, for arrays larger than the caches."""


def measure(products: Iterable[Product], device: torch.device, clock: Callable[[], float] | None = None) -> DeviceRates:
    """Measure the rate of each product (with at most ``MAX_COLUMNS`` columns) and the memory bandwidth. ``clock``, in
    seconds, is ``time.perf_counter`` by default."""
    clock = clock or time.perf_counter
    rates = {}
    with torch.inference_mode():
        for product in products:
            columns = min(product.columns, MAX_COLUMNS)
            x_RI = torch.randn(product.rows, product.inner, device=device).to(product.dtype)
            weight_CI = torch.randn(columns, product.inner, device=device).to(product.dtype)
            output_RC = torch.empty(product.rows, columns, device=device, dtype=product.dtype)
            seconds = _median_seconds(partial(torch.mm, x_RI, weight_CI.T, out=output_RC), device, clock)
            rates[product] = replace(product, columns=columns).flops / seconds
        left, right, total = (torch.ones(STREAM_SIZE, device=device) for _ in range(3))
        seconds = _median_seconds(partial(torch.add, left, right, out=total), device, clock)
    return DeviceRates(rates, 3 * 4 * STREAM_SIZE / seconds)


def _median_seconds(work: Callable[[], object], device: torch.device, clock: Callable[[], float]) -> float:
    """Median seconds per call over about ``SECONDS_EACH``, without the first call, which warms up."""
    seconds: list[float] = []
    began = clock()
    while len(seconds) < 3 or clock() - began < SECONDS_EACH:
        started = clock()
        work()
        synchronize(device)
        seconds.append(clock() - started)
    return statistics.median(seconds[1:])


def free_bytes(device: torch.device) -> int:
    """Free memory of an accelerator, or free main memory."""
    if (memory := device_memory(device)) is not None:
        return memory.free
    free = int(psutil.virtual_memory().available)
    if not all(path.is_file() for path in _CGROUP_FILES):
        return free
    limit, used = (path.read_text().strip() for path in _CGROUP_FILES)  # of a container
    return min(free, int(limit) - int(used)) if limit.isdigit() else free


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(psutil.Process().memory_info().rss)
