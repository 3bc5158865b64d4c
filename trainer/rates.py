"""How fast a device multiplies matrices and moves bytes, measured in about a second, and what room it has.

Shapes: R rows, I inner width, C columns of a product [R, I] x [I, C].
"""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

SECONDS_EACH = 0.2
MOST_COLUMNS = 4096
"""More make a product no faster, only longer."""
STREAMED = 1 << 24
"""Float32 numbers of each of three arrays, 64 MB each: more than caches hold."""
_MEMORY = Path("/proc/meminfo")
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


def measure(products: Iterable[Product], device: torch.device) -> Rates:
    """Time each product, with as many columns as it has up to ``MOST_COLUMNS``, and a sum of arrays."""
    return Rates({product: _product_rate(product, device) for product in products}, _stream_rate(device))


@torch.inference_mode()
def _product_rate(product: Product, device: torch.device) -> float:
    columns = min(product.columns, MOST_COLUMNS)
    x_RI = torch.randn(product.rows, product.inner, device=device).to(product.dtype)
    weight_CI = torch.randn(columns, product.inner, device=device).to(product.dtype)
    made_RC = torch.empty(product.rows, columns, device=device, dtype=product.dtype)
    seconds = _median_seconds(lambda: torch.mm(x_RI, weight_CI.T, out=made_RC), device)
    return 2 * product.rows * product.inner * columns / seconds


@torch.inference_mode()
def _stream_rate(device: torch.device) -> float:
    one, other, total = (torch.ones(STREAMED, device=device) for _ in range(3))
    return 3 * 4 * STREAMED / _median_seconds(lambda: torch.add(one, other, out=total), device)


def _median_seconds(work: Callable[[], object], device: torch.device) -> float:
    """Of the calls that fit into ``SECONDS_EACH``; the first, which warms up, is not counted."""
    taken: list[float] = []
    begun = time.perf_counter()
    while len(taken) < 3 or time.perf_counter() - begun < SECONDS_EACH:
        started = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken[1:])


def free_bytes(device: torch.device) -> int | None:
    """What can still be had of a device's memory: of a GPU's own, else of main memory; None where nobody says."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    known = [size for size in (_free_in_machine(), _free_in_group()) if size is not None]
    return min(known, default=None)


def _free_in_machine() -> int | None:
    if _MEMORY.is_file():
        found = re.search(r"^MemAvailable:\s+(\d+) kB", _MEMORY.read_text(), flags=re.MULTILINE)
        return int(found[1]) * 1024 if found else None
    if "SC_PHYS_PAGES" in os.sysconf_names:  # all that there is: what is free, such systems do not say
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _free_in_group() -> int | None:
    """What a container's limit leaves."""
    if not all(path.is_file() for path in _LIMITS):
        return None
    most, used = (path.read_text().strip() for path in _LIMITS)
    return int(most) - int(used) if most.isdigit() else None


def resident_bytes() -> int:
    """What this process has in memory; 0 where nobody says."""
    status = Path("/proc/self/status")
    found = re.search(r"^VmRSS:\s+(\d+) kB", status.read_text(), flags=re.MULTILINE) if status.is_file() else None
    return int(found[1]) * 1024 if found else 0


def device_name(device: torch.device) -> str:
    """What to call it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"
