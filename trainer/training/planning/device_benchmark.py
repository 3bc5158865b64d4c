"""Device benchmark of about a second: matrix product rates and memory bandwidth. Also the free memory.

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
    """Measure the rate of each product (with at most ``MAX_COLUMNS`` columns) and the memory bandwidth.

    Args:
        products: the products to measure.
        device: the device to measure.
        clock: clock in seconds; ``time.perf_counter`` by default.
    """
    clock = clock or time.perf_counter
    return DeviceRates(
        {product: _product_rate(product, device, clock) for product in products}, _stream_rate(device, clock)
    )


@torch.inference_mode()
def _product_rate(product: Product, device: torch.device, clock: Callable[[], float]) -> float:
    columns = min(product.columns, MAX_COLUMNS)
    x_RI = torch.randn(product.rows, product.inner, device=device).to(product.dtype)
    weight_CI = torch.randn(columns, product.inner, device=device).to(product.dtype)
    output_RC = torch.empty(product.rows, columns, device=device, dtype=product.dtype)
    seconds = _median_seconds(lambda: torch.mm(x_RI, weight_CI.T, out=output_RC), device, clock)
    return replace(product, columns=columns).flops / seconds


@torch.inference_mode()
def _stream_rate(device: torch.device, clock: Callable[[], float]) -> float:
    left, right, total = (torch.ones(STREAM_SIZE, device=device) for _ in range(3))
    return 3 * 4 * STREAM_SIZE / _median_seconds(lambda: torch.add(left, right, out=total), device, clock)


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
    free_in_cgroup = _free_in_cgroup()
    return free if free_in_cgroup is None else min(free, free_in_cgroup)


def _free_in_cgroup() -> int | None:
    """Memory left within a container's limit; None without a limit."""
    if not all(path.is_file() for path in _CGROUP_FILES):
        return None
    limit, used = (path.read_text().strip() for path in _CGROUP_FILES)
    return int(limit) - int(used) if limit.isdigit() else None


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(psutil.Process().memory_info().rss)
