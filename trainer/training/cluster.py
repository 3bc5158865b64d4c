"""Datasheets of GPUs, links between processes, and the time that a step's communication takes.

Rates are vendors' peak figures for dense products, of which ``PEAK_SHARE`` is assumed. Nothing here is measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from mxd.trainer.training.rates import DeviceRates, Product

PEAK_SHARE = 0.5
"""Assumed share of a vendor's peak that large matrix products, memory and links reach."""
NETWORK = 50e9
"""Bytes per second and GPU between machines: 400 Gbit/s InfiniBand."""


@dataclass(frozen=True)
class Datasheet:
    """Peak rates of a device."""

    name: str
    bfloat16: float
    """FLOP/s."""
    float32: float
    """FLOP/s, without TF32."""
    bytes_per_second: float
    """Memory bandwidth."""
    memory: int
    """Bytes."""
    link: float
    """Bytes per second in each direction between the devices of a machine: NVLink, Infinity Fabric or PCIe."""

    def rates(self, products: Iterable[Product]) -> DeviceRates:
        """Assumed rates, instead of measured ones."""
        peaks = {torch.bfloat16: self.bfloat16, torch.float16: self.bfloat16, torch.float32: self.float32}
        rates = {product: PEAK_SHARE * peaks[product.dtype] for product in products}
        return DeviceRates(rates, PEAK_SHARE * self.bytes_per_second)


DATASHEETS = {
    "a100": Datasheet("NVIDIA A100 80 GB", 312e12, 19.5e12, 2.0e12, 80 * 10**9, 300e9),
    "h100": Datasheet("NVIDIA H100 SXM", 989e12, 67e12, 3.35e12, 80 * 10**9, 450e9),
    "h200": Datasheet("NVIDIA H200", 989e12, 67e12, 4.8e12, 141 * 10**9, 450e9),
    "b200": Datasheet("NVIDIA B200", 2250e12, 75e12, 8e12, 180 * 10**9, 900e9),
    "l40s": Datasheet("NVIDIA L40S", 362e12, 91.6e12, 0.86e12, 48 * 10**9, 32e9),
    "mi300x": Datasheet("AMD MI300X", 1307e12, 163e12, 5.3e12, 192 * 10**9, 448e9),
}
"""Devices that ``--plan`` can plan for on any machine."""


def spread(work: Sequence[float], processes: int) -> list[list[int]]:
    """Indices of each process's tasks, of about equally much work: the largest first, to the least busy process."""
    shares: list[list[int]] = [[] for _ in range(processes)]
    for index in sorted(range(len(work)), key=work.__getitem__, reverse=True):
        min(shares, key=lambda share: sum(work[each] for each in share)).append(index)
    return shares


class Links(NamedTuple):
    """Bytes per second of one process, in each direction."""

    inside: float
    """To other processes of its machine."""
    between: float
    """To other machines."""


SLOW_LINKS = Links(5e9, 1.25e9)
"""gloo on CPUs: shared memory, and 10 Gbit/s Ethernet."""


def links_of(device: torch.device, datasheet: Datasheet | None) -> Links:
    """Assumed links of a device; local GPUs count as PCIe 4."""
    if datasheet is None and device.type == "cpu":
        return SLOW_LINKS
    link = DATASHEETS["l40s"].link if datasheet is None else datasheet.link
    return Links(PEAK_SHARE * link, PEAK_SHARE * min(NETWORK, link))


class Grid(NamedTuple):
    """Processes, evenly distributed over machines."""

    processes: int
    nodes: int

    @property
    def inside(self) -> int:
        """Processes per machine."""
        return self.processes // self.nodes

    def all_reduce(self, size: float, links: Links) -> float:
        """Seconds to sum ``size`` bytes over all processes: reduced within a machine, then each part between them."""
        inside = 2 * (self.inside - 1) / self.inside * size / links.inside
        return inside + 2 * (self.nodes - 1) / self.nodes * size / self.inside / links.between

    def gather(self, size: float, links: Links) -> float:
        """Seconds to get an equal part of ``size`` bytes from each other process: half of an all-reduce."""
        return self.all_reduce(size, links) / 2

    def all_to_all(self, size: float, links: Links) -> float:
        """Seconds to get ``size`` bytes from each other process."""
        return size * ((self.inside - 1) / links.inside + (self.processes - self.inside) / links.between)

    def smaller(self) -> list[Grid]:
        """This grid and those with fewer processes: some GPUs of a machine, or some whole machines."""
        counts = {min(2**power, self.inside) for power in range(math.ceil(math.log2(self.inside)) + 1)}
        machines = {min(2**power, self.nodes) for power in range(1, math.ceil(math.log2(self.nodes)) + 1)}
        return [Grid(count, 1) for count in sorted(counts)] + [
            Grid(count * self.inside, count) for count in sorted(machines)
        ]
