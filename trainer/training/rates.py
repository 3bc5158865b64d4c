"""Rates and memory of the local device, measured in about a second, and what layers and language models need of them.

Datasheets of GPUs, links between processes, and the time that a step's communication takes, are not measured: rates are
vendors' peak figures for dense products, of which ``PEAK_SHARE`` is assumed. Parameters, FLOPs and memory traffic
follow from widths alone. A multiply-add counts as two FLOPs.

Shapes: I input or inner width, H hidden width, O output width, N experts, K active, R rank or rows, C columns.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, Self

import psutil
import torch

from mxd.trainer.config.layer import LayerConfig, Method, max_active, method_traits
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

    def smaller(self) -> list[Self]:
        """This grid and those with fewer processes: some GPUs of a machine, or some whole machines."""
        counts = {min(2**power, self.inside) for power in range(math.ceil(math.log2(self.inside)) + 1)}
        machines = {min(2**power, self.nodes) for power in range(1, math.ceil(math.log2(self.nodes)) + 1)}
        return [type(self)(count, 1) for count in sorted(counts)] + [
            type(self)(count * self.inside, count) for count in sorted(machines)
        ]


FLOAT32, BFLOAT16 = 4, 2
"""Bytes per number."""
ADAMW_BYTES = 16
"""Bytes per trained parameter: float32 weight, gradient and two moments."""

BLOCK_PASSES, ACTIVATION_PASSES = 24, 6
"""Vectors of hidden width, and of MLP width, that a block reads or writes per token outside matrix products: norms,
residuals, rotary embeddings, activation functions. Counted in Llama's and GPT-2's code."""
SCORE_BYTES = 16
"""Memory traffic per gate score: write, add the bias, read for top-k."""
OPTIMIZER_BYTES = 36
"""Memory traffic per parameter and step: write and read the gradient, read and write the weight and two moments."""


@dataclass(frozen=True)
class Forward:
    """Forward pass through the model's blocks, up to the last trained layer."""

    blocks: int
    matrix_parameters: int
    """Parameters of all these blocks, without norms and biases."""
    width: int
    hidden_width: int
    context: int

    @property
    def flops(self) -> int:
        """FLOPs per token. Attention reads half of the context on average."""
        return 2 * self.matrix_parameters + self.blocks * 4 * self.width * self.context // 2

    def elementwise_bytes(self, itemsize: int) -> int:
        """Memory traffic per token of element-wise operations, which outweighs that of matrix products."""
        return self.blocks * itemsize * (BLOCK_PASSES * self.width + ACTIVATION_PASSES * self.hidden_width)


@dataclass(frozen=True)
class LayerSizes:
    """Sizes of a layer that replaces a gated MLP (``readers`` 2) or a plain one (1)."""

    input_width: int
    hidden_width: int
    output_width: int
    num_experts: int
    k: int
    readers: Literal[1, 2]
    method: Method = "mxd"
    rank: int | None = None
    """Bottleneck width R of the experts; for a MOLT, the sum over its transforms. None without a bottleneck."""

    @classmethod
    def from_config(cls, config: LayerConfig) -> Self:
        readers: Literal[1, 2] = 2 if config.encoder == "glu" and not method_traits(config.method).mixes_hidden else 1
        widths = config.input_width, config.hidden_width, config.output_width
        traits = method_traits(config.method).rank
        inner = None if traits is None or config.rank is None else traits.bottleneck(config.num_experts, config.rank)
        return cls(*widths, config.num_experts, config.k, readers, config.method, inner)

    @property
    def encodes(self) -> bool:
        """True if the layer has an encoder, as every kind of MxD."""
        return self.method.endswith("mxd")

    @property
    def table_width(self) -> int:
        """Width of an expert's row in the table: O, R with a bottleneck, H if hidden units are mixed, 0 for a MOLT."""
        if self.method == "molt":
            return 0
        return self.hidden_width if method_traits(self.method).mixes_hidden else self.rank or self.output_width

    @property
    def _input_weights(self) -> int:
        """Weights that multiply the layer's input, whose gradient is not needed."""
        if self.encodes:
            return self.readers * self.input_width * self.hidden_width
        columns = {"skip-transcoder": self.output_width, "molt": self.rank or 0}
        return self.input_width * columns.get(self.method, 0)

    @property
    def _later_weights(self) -> int:
        if method_traits(self.method).mixes_hidden:
            return self.hidden_width * self.output_width
        up = self.rank * self.output_width if self.rank else 0
        return up + (self.hidden_width * self.table_width if self.encodes else 0)

    @property
    def dense_parameters(self) -> int:
        """Parameters of encoder, decoder and output bias, which every process holds."""
        biases = self.readers * self.hidden_width if self.encodes else 0
        return self._input_weights + self._later_weights + biases + self.output_width

    @property
    def table_parameters(self) -> int:
        """Parameters of gate and expert table, which have one row per expert and can be sharded."""
        return self.num_experts * (self.input_width + 1 + self.table_width)

    @property
    def parameters(self) -> int:
        return self.dense_parameters + self.table_parameters

    @property
    def dense_flops(self) -> int:
        """FLOPs per token, forward and backward, of all products except the gate's."""
        return 2 * (2 * self._input_weights + 3 * self._later_weights)

    @property
    def gate_flops(self) -> int:
        """FLOPs per token of the gate's scores."""
        return 2 * self.input_width * self.num_experts

    @property
    def step_flops_per_token(self) -> int:
        """FLOPs per token, forward and backward: gate scores, dense products and K rows of each table."""
        row_flops = 2 * max_active(self.method, self.k) * (self.input_width + 3 * self.table_width)
        return self.dense_flops + self.gate_flops + row_flops

    def step_bytes_per_token(self, batch: int) -> int:
        """Memory traffic per token outside the products: rows, scores, hidden vectors and optimizer."""
        rows = FLOAT32 * max_active(self.method, self.k) * (self.input_width + 5 * self.table_width)
        hidden = FLOAT32 * 6 * self.readers * self.hidden_width if self.encodes else 0
        return rows + hidden + SCORE_BYTES * self.num_experts + OPTIMIZER_BYTES * self.parameters // batch
