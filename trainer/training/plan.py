"""Plans of training (``mxd train --plan``): memory, disk, FLOPs and time before anything is trained.

Parameters, memory, FLOPs and traffic follow from widths alone. A benchmark of about a second measures the
rate of a few representative matrix products and the memory bandwidth of the device.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import NamedTuple, Self

import torch
from torch import nn

from mxd.trainer.config.layer import max_active
from mxd.trainer.config.presets import known_shape
from mxd.trainer.config.training import GPU_SCORES, TrainConfig
from mxd.trainer.data.activations import PREFETCHED_BUFFERS, SEQUENCES_PER_FORWARD, StreamSpec, prefetches
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.architecture import Architecture
from mxd.trainer.language_model.loading import Sharding, choose_device, load_outline, outline_of
from mxd.trainer.layers.ops import ops_on
from mxd.trainer.layers.variants import build_layer
from mxd.trainer.training.initialization import needs_sample
from mxd.trainer.training.layer_trainer import Parallel, build_layer_config, check_processes
from mxd.trainer.training.precision import dtype_name, dtype_of, fastest_dtype, product_dtype
from mxd.trainer.training.rates import (
    ADAMW_BYTES,
    DATASHEETS,
    FLOAT32,
    Datasheet,
    DeviceRates,
    Forward,
    Grid,
    LayerSizes,
    Links,
    Product,
    free_bytes,
    links_of,
    measure,
    resident_bytes,
    spread,
)
from mxd.trainer.utils.devices import device_name
from mxd.trainer.utils.distributed import AUTO_MAP, ProcessGroup
from mxd.trainer.utils.memory import HEAP_GROWTH_BYTES


@dataclass(frozen=True)
class LayerPlan:
    """Sizes of one run's layer."""

    run: str
    method: str
    layer: int
    num_experts: int
    k: int
    parameters: int
    step_flops_per_token: int


@dataclass(frozen=True)
class TrainPlan:
    """Report of ``mxd train --plan``."""

    device: str
    processes: int
    shard_model: Sharding | None
    """How processes share the weights of the model; None if each holds all that it uses."""
    language_model_dtype: str
    language_model_parameters: int
    language_model_used_parameters: int
    """Weights in the blocks that are run, without norms and biases."""
    layers: list[LayerPlan]
    memory: dict[str, int]
    """Bytes of one process by kind."""
    memory_total: int
    memory_free: int
    """Free bytes on the device."""
    disk: int
    """Bytes of two checkpoints, which exist while a new one is written."""
    tokens: int
    flops_per_token: int
    """FLOPs per token of the model and all runs."""
    communication: dict[str, float]
    """Seconds per step by kind; empty for a single process."""
    links: Links
    """Assumed bytes per second between processes."""
    tokens_per_second: float
    """Expected throughput of all processes, each with a device like this one."""
    hours: float
    share_of_products: float
    """Expected share of the measured FLOP/s of matrix products."""
    refusal: str | None
    """Error message with a configuration that would fit; None if this one does."""


GATHERED = "gathering the model"
UTILIZATION = 0.85
"""Share of the measured rates that forward passes and steps reach. Calibrated on CPUs, not on GPUs."""
BUSY_SHARE = 0.95
"""Share of the time in forward passes and steps. The rest is shuffling, metrics, logging and checkpoints."""
CHECKPOINT_BYTES = 12
"""Bytes per parameter in a checkpoint: float32 weight and two moments."""


class TrainSetup(NamedTuple):
    device: torch.device
    auto_map: bool = False
    """True if the model is spread over several devices."""
    processes: int = 1
    parallel: Parallel = "tokens"
    sharding: Sharding | None = None
    """How processes share the weights of the model; None if each holds all that it uses."""
    nodes: int = 1
    datasheet: Datasheet | None = None
    """Rates and memory of a device that this machine lacks; None to measure the local one."""

    @classmethod
    def from_device_name(cls, device: str, processes: int = 1, nodes: int = 1) -> Self:
        """Setup on the device of this name, or on one of ``DATASHEETS``, which can only be planned for. Raises
        UserError if there is no such device, or the processes cannot be divided evenly over the machines."""
        if processes % nodes:
            raise UserError(
                f"{processes} processes cannot be divided evenly over {nodes} machines. Change --processes."
            )
        datasheet = DATASHEETS.get(device)
        chosen = choose_device(device) if datasheet is None else torch.device("cuda")
        return cls(chosen, device == AUTO_MAP, processes, "tokens", None, nodes, datasheet)

    @property
    def grid(self) -> Grid:
        return Grid(self.processes, self.nodes)

    @property
    def free_bytes(self) -> int:
        return free_bytes(self.device) if self.datasheet is None else self.datasheet.memory

    def rates(self, products: Iterable[Product]) -> DeviceRates:
        """Measured rates of the local device, or those of the datasheet."""
        distinct = dict.fromkeys(products)
        return measure(distinct, self.device) if self.datasheet is None else self.datasheet.rates(distinct)

    @property
    def sharing(self) -> int:
        """Number of processes that share a sharded model: those of a machine, or all if each is alone on its own."""
        per_node = self.processes // self.nodes
        return per_node if per_node > 1 else self.processes


class PlannedTraining:
    def __init__(self, configs: Sequence[TrainConfig], setup: TrainSetup) -> None:
        self.configs, self.setup = list(configs), setup
        self.stream = StreamSpec.from_configs(configs)
        self._check_processes()
        source = configs[0].language_model
        shape = None if Path(source).exists() else known_shape(source)
        self.outline = load_outline(source) if shape is None else outline_of(shape)
        self.architecture = Architecture(self.outline, source)
        dtype, width = configs[0].language_model_dtype, getattr(self.outline.config.get_text_config(), "hidden_size", 0)
        self.dtype = dtype_of(dtype) if dtype else fastest_dtype(setup.device, width)

    def on(self, setup: TrainSetup) -> Self:
        """The same runs with another setup. Errors as ``check_processes``."""
        other = copy.copy(self)
        other.setup = setup
        other._check_processes()
        return other

    def of(self, configs: Sequence[TrainConfig]) -> Self:
        """The same setup with other settings of the runs, or fewer of them."""
        other = copy.copy(self)
        other.configs, layers = list(configs), self.stream.layers
        other.stream = replace(StreamSpec.from_configs(configs), layers=layers)
        vars(other).pop("sizes", None)
        return other

    def _check_processes(self) -> None:
        self.stream.plan.shard(ProcessGroup(0, self.setup.processes))
        for config in self.configs if self.setup.parallel != "runs" else ():
            check_processes(config, self.setup.processes)

    @cached_property
    def sizes(self) -> list[LayerSizes]:
        return [LayerSizes.from_config(build_layer_config(config, self.architecture)) for config in self.configs]

    @property
    def own_runs(self) -> list[int]:
        """Indices of the runs of the busiest process."""
        work = [layer.step_flops_per_token for layer in self.sizes]
        if self.setup.parallel != "runs":
            return list(range(len(work)))
        return max(spread(work, self.setup.processes), key=lambda share: sum(work[run] for run in share))

    @property
    def step_tokens(self) -> int:
        batch = self.stream.plan.batch_tokens
        return batch if self.setup.parallel == "runs" else batch // self.setup.processes

    @property
    def trained_per_token(self) -> int:
        """Tokens that a process trains on per token that it runs through the model."""
        return self.step_tokens * self.setup.processes // self.stream.plan.batch_tokens

    @cached_property
    def forward(self) -> Forward:
        last = max(self.stream.layers)
        self.architecture.block(last)  # raises an error if there is none
        blocks = self.architecture.blocks[: last + 1]
        matrices = sum(weight.numel() for block in blocks for weight in block.parameters() if weight.dim() > 1)
        shape = self.architecture.mlp_shape(last)
        return Forward(last + 1, matrices, shape.input_width, shape.hidden_width, self.stream.plan.context_length)

    def memory(self) -> dict[str, int]:
        """Additional peak memory of one process, in bytes by kind."""
        plan, world_size, own = self.stream.plan, self.setup.processes, self.own_runs
        sizes = [self.sizes[run] for run in own]
        shards = world_size if self.setup.parallel == "experts" else 1
        parameters = [layer.dense_parameters + layer.table_parameters // shards for layer in sizes]
        gradients = FLOAT32 * max(parameters)  # those of one run at a time
        layers = (ADAMW_BYTES - FLOAT32) * sum(parameters) + gradients
        shapes = [self.architecture.mlp_shape(layer) for layer in self.stream.layers]
        buffer_tokens = plan.buffer_tokens // world_size
        is_ahead = prefetches(self.setup.device) and self.setup.sharding is None
        buffers = 1 + PREFETCHED_BUFFERS if is_ahead else 1
        widths = sum(shape.input_width + shape.output_width for shape in shapes)
        buffer_bytes = FLOAT32 * buffers * buffer_tokens * widths
        if any(map(needs_sample, self.configs)):  # the complete first buffer, before there are gradients and moments
            complete = FLOAT32 * plan.buffer_tokens * widths
            buffer_bytes = max(buffer_bytes, complete - layers + FLOAT32 * sum(parameters))
        step = max(self.step_bytes(layer, self.step_tokens) for layer in sizes)
        if self.setup.parallel == "runs":  # a step's tokens of all processes, and their parts before they are joined
            own_layers = {self.configs[run].layer for run in own}
            joined = [shape for layer, shape in zip(self.stream.layers, shapes, strict=True) if layer in own_layers]
            step += 2 * FLOAT32 * plan.batch_tokens * sum(shape.input_width + shape.output_width for shape in joined)
        forward = self.forward_bytes(buffer_tokens)
        # The next buffer is computed during the steps, or between them, when there are no gradients.
        step = step + forward if is_ahead else max(step, forward - gradients)
        # Gaps between blocks; fewer where processes return the pages of gradients, as measured on one machine.
        reserve = HEAP_GROWTH_BYTES if world_size == 1 else HEAP_GROWTH_BYTES * 3 // 4
        return {
            "model weights": 0 if self.setup.auto_map else self.language_model_bytes,
            "layers, gradients and moments": layers,
            "activation buffers": buffer_bytes,
            "step and forward pass": step,
            "reserve of the heap": reserve if self.setup.device.type == "cpu" else 0,
        }

    @property
    def language_model_bytes(self) -> int:
        """Bytes of a process's weights of the model. FSDP also gathers the embedding, and two blocks at a time."""
        unused = self.architecture.blocks[max(self.stream.layers) + 1 :]
        used = self.parameters - sum(weight.numel() for weight in unused.parameters())
        if self.setup.sharding is None:
            return self.dtype.itemsize * used
        used //= self.setup.sharing
        if self.setup.sharding == "fsdp":
            embedding = self.outline.get_input_embeddings()
            blocks = sorted(_num_parameters(block) for block in self.architecture.blocks)
            used += sum(blocks[-2:]) + _num_parameters(embedding)
        return self.dtype.itemsize * used

    def communication(self) -> dict[str, float]:
        """Seconds of a step's transfers between processes, by kind."""
        setup, plan, grid = self.setup, self.stream.plan, self.setup.grid
        if setup.processes == 1:
            return {}
        links, batch = links_of(setup.device, setup.datasheet), plan.batch_tokens // setup.processes
        if setup.parallel == "runs":
            own_layers = {self.configs[run].layer for run in self.own_runs}
            shapes = [self.architecture.mlp_shape(layer) for layer in own_layers]
            size = FLOAT32 * plan.batch_tokens * sum(shape.input_width + shape.output_width for shape in shapes)
            seconds = {"gathering activations": grid.gather(size, links)}
        else:
            is_sharded = setup.parallel == "experts"
            averaged = sum(layer.dense_parameters if is_sharded else layer.parameters for layer in self.sizes)
            seconds = {"averaging gradients": grid.all_reduce(FLOAT32 * averaged, links)}
        if setup.parallel == "experts":
            # Rows and their outputs, whose gradient also travels; scores and ids of K candidates, there and back.
            widths = sum(layer.input_width + 2 * layer.table_width + 8 * layer.k for layer in self.sizes)
            seconds["tokens to experts and back"] = grid.all_to_all(FLOAT32 * batch * widths, links)
        sharing = Grid(setup.sharing, 1 if grid.inside > 1 else setup.sharing)
        if setup.sharding == "fsdp":
            forwards = -(-plan.sequences_per_buffer // setup.processes // SEQUENCES_PER_FORWARD)
            weights = self.dtype.itemsize * self.forward.matrix_parameters
            seconds[GATHERED] = sharing.gather(weights, links) * forwards / plan.steps_per_buffer
        if setup.sharding == "tp":  # two sums per block; each process computes the tokens of all that share the model
            size = 2 * self.forward.blocks * self.dtype.itemsize * self.forward.width * batch * setup.sharing
            seconds["sums of tensor parallelism"] = sharing.all_reduce(size, links)
        return seconds

    def forward_bytes(self, buffer_tokens: int) -> int:
        """Activation memory of a forward pass, for buffers of this size."""
        context = self.stream.plan.context_length
        shapes = [self.architecture.mlp_shape(layer) for layer in self.stream.layers]
        hidden_width = max(shape.hidden_width for shape in shapes)
        sequences = min(SEQUENCES_PER_FORWARD, buffer_tokens // context)
        return sequences * context * self.dtype.itemsize * (4 * hidden_width + 8 * shapes[0].input_width)

    @cached_property
    def parameters(self) -> int:
        return _num_parameters(self.outline)

    def step_bytes(self, sizes: LayerSizes, batch: int) -> int:
        """Memory of a step: tensors kept for the backward pass, and the gate scores that are in memory at once."""
        if self.setup.datasheet is not None:
            at_a_time = max(1, GPU_SCORES // sizes.num_experts)
        else:
            at_a_time = ops_on(self.setup.device).tokens_at_a_time(sizes.num_experts)
        tokens = min(batch, at_a_time)
        scores = 2 * tokens * sizes.num_experts  # the scores, and what selects the largest
        columns = max_active(sizes.method, sizes.k)
        rows = 2 * sizes.input_width + 6 * sizes.output_width + 3 * sizes.readers * sizes.hidden_width + 6 * columns
        return FLOAT32 * (scores + batch * (rows + 6 * (sizes.rank or 0)))


def seconds_per_token(planned: PlannedTraining, rates: DeviceRates) -> float:
    """Expected seconds per token of one process. FSDP gathers blocks during the forward pass, which hides them."""
    expected = expected_seconds(planned, rates)
    batch = planned.stream.plan.batch_tokens // planned.setup.processes
    transfers = {kind: seconds / batch for kind, seconds in planned.communication().items()}
    gathered = max(0.0, transfers.pop(GATHERED, 0.0) - expected.forward)
    return (sum(expected) + gathered + sum(transfers.values())) / BUSY_SHARE


def plan_training(configs: Sequence[TrainConfig], setup: TrainSetup) -> TrainPlan:
    """Plan runs that are trained together. Benchmarks the device for about a second. Raises UserError if the model's
    config cannot be read, the model has no such layer, or the runs need different batches."""
    planned = PlannedTraining(configs, setup)
    products = products_of(planned)
    rates = setup.rates(products.values())
    seconds, flops = seconds_per_token(planned, rates), _flops(planned)
    memory, resident = planned.memory(), resident_bytes() if setup.datasheet is None else 0
    tokens = planned.stream.plan.tokens
    rate = setup.processes / seconds
    ideal_seconds = sum(flops[name] / rates.products[product] for name, product in products.items())
    return TrainPlan(
        device=device_name(setup.device) if setup.datasheet is None else setup.datasheet.name,
        processes=setup.processes,
        shard_model=setup.sharding,
        language_model_dtype=dtype_name(planned.dtype),
        language_model_parameters=planned.parameters,
        language_model_used_parameters=planned.forward.matrix_parameters,
        layers=[
            LayerPlan(it.name, it.method, it.layer, of.num_experts, of.k, of.parameters, of.step_flops_per_token)
            for it, of in zip(configs, planned.sizes, strict=True)
        ],
        memory={"this process": resident} | memory,
        memory_total=resident + sum(memory.values()),
        memory_free=setup.free_bytes,
        disk=2 * CHECKPOINT_BYTES * sum(layer.parameters for layer in planned.sizes),
        tokens=tokens,
        flops_per_token=planned.forward.flops + sum(layer.step_flops_per_token for layer in planned.sizes),
        communication=planned.communication(),
        links=links_of(setup.device, setup.datasheet),
        tokens_per_second=rate,
        hours=tokens / rate / 3600,
        share_of_products=ideal_seconds / seconds,
        refusal=_memory_error(planned),
    )


def check_fits_memory(configs: Sequence[TrainConfig], setup: TrainSetup) -> None:
    """Check that training fits into the device's memory. Raises UserError if it does not fit (the message has a
    configuration that would); or as ``plan_training``."""
    if (message := _memory_error(PlannedTraining(configs, setup))) is not None:
        raise UserError(message)


def can_spread_runs(configs: Sequence[TrainConfig], setup: TrainSetup) -> bool:
    """True if each of several processes gets at least one run and has memory for its own."""
    if not 1 < setup.processes <= len(configs):
        return False
    return _memory_error(PlannedTraining(configs, setup._replace(parallel="runs"))) is None


def choose_sharding(configs: Sequence[TrainConfig], setup: TrainSetup) -> Sharding | None:
    """``fsdp`` if several processes can only train with a sharded model; else None, which communicates least."""
    if setup.processes == 1 or setup.auto_map or _memory_error(PlannedTraining(configs, setup)) is None:
        return None
    return "fsdp"


def _num_parameters(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


def _memory_error(planned: PlannedTraining) -> str | None:
    """Error message with a configuration that would fit; None if this one does."""
    needed, free = sum(planned.memory().values()), planned.setup.free_bytes
    if needed <= free:
        return None
    return f"Training needs {_bytes(needed)} of memory, but only {_bytes(free)} are free. {_suggest(planned, free)}"


def _suggest(planned: PlannedTraining, free: int) -> str:
    """Smallest change that would fit: a smaller buffer, fewer experts, both, or fewer runs."""
    if (weights := planned.memory()["model weights"]) > free:
        return (
            f"The model alone needs {_bytes(weights)}. Use a smaller model, more processes with --shard-model=fsdp "
            "(torchrun --nproc-per-node N), or --device=auto-map."
        )

    def fits(configs: Sequence[TrainConfig]) -> bool:
        return sum(planned.of(configs).memory().values()) <= free

    plan = planned.stream.plan
    steps = plan.buffer_tokens // plan.batch_tokens
    for shift in range(1, steps.bit_length()):
        size = plan.batch_tokens * (steps >> shift)
        if fits(_with_buffer(planned.configs, size)):
            return f"--buffer-tokens {size} would fit."
    if experts := _max_experts(planned, fits):
        return f"--num-experts {experts} would fit."
    smallest = _with_buffer(planned.configs, plan.batch_tokens)
    if experts := _max_experts(planned, lambda configs: fits(_with_buffer(configs, plan.batch_tokens))):
        return f"--num-experts {experts} with --buffer-tokens {plan.batch_tokens} would fit."
    for count in range(len(smallest) - 1, 0, -1):
        if fits(smallest[:count]):
            return (
                f"{count} of these {len(smallest)} runs at a time with --buffer-tokens {plan.batch_tokens} would fit."
            )
    return "Try a smaller --batch-tokens or a smaller model."


def _max_experts(planned: PlannedTraining, fits: Callable[[Sequence[TrainConfig]], bool]) -> int:
    """Largest N, with two significant digits, for which all runs fit; 0 if even K experts do not fit."""
    min_experts = max(config.k for config in planned.configs)
    limit = max(layer.num_experts for layer in planned.sizes)
    counts = {digits * 10**power for power in range(len(str(limit))) for digits in range(1, 100)}

    def fit(count: int) -> bool:
        return fits([config.model_copy(update={"num_experts": count}) for config in planned.configs])

    return max((count for count in counts if min_experts <= count < limit and fit(count)), default=0)


def _with_buffer(configs: Sequence[TrainConfig], buffer_tokens: int) -> list[TrainConfig]:
    return [config.with_optimizer(buffer_tokens=buffer_tokens) for config in configs]


def products_of(planned: PlannedTraining) -> dict[str, Product]:
    """Representative matrix products of the model, and of the gate and dense part of each of a process's layers."""
    plan, forward = planned.stream.plan, planned.forward
    rows = min(SEQUENCES_PER_FORWARD * plan.context_length, plan.buffer_tokens)
    products = {"model": Product(rows, forward.width, forward.hidden_width, planned.dtype)}
    for run in planned.own_runs:
        layer, precision = planned.sizes[run], planned.configs[run].optimizer.matmul_precision
        if planned.setup.parallel == "experts":  # as in training, where sharded experts stay in float32
            precision = "highest"
        dtype = product_dtype(precision, planned.setup.device, layer.input_width)
        products[f"gate {run}"] = Product(planned.step_tokens, layer.input_width, layer.num_experts, dtype)
        products[f"dense {run}"] = Product(planned.step_tokens, layer.input_width, layer.hidden_width, dtype)
    return products


class ExpectedSeconds(NamedTuple):
    """Expected seconds of one process per token that it runs through the model."""

    forward: float
    steps: float
    """Training steps of its runs, on the tokens of all processes if runs are spread."""


def expected_seconds(planned: PlannedTraining, rates: DeviceRates) -> ExpectedSeconds:
    """Expected time from the measured rates of ``products_of``. Rows are gathered at memory bandwidth."""
    products, flops = products_of(planned), _flops(planned)
    seconds = {name: count / rates.products[products[name]] for name, count in flops.items()}
    forward = seconds.pop("model")
    elementwise = planned.forward.elementwise_bytes(planned.dtype.itemsize) / rates.bytes_per_second
    traffic = sum(planned.sizes[run].step_bytes_per_token(planned.step_tokens) for run in planned.own_runs)
    steps = sum(seconds.values()) + planned.trained_per_token * traffic / rates.bytes_per_second
    return ExpectedSeconds((forward + elementwise) / UTILIZATION, steps / UTILIZATION)


def _flops(planned: PlannedTraining) -> dict[str, float]:
    """FLOPs of a process's products, per token that it runs through the model."""
    flops: dict[str, float] = {"model": planned.forward.flops}
    for run in planned.own_runs:
        flops[f"gate {run}"] = planned.trained_per_token * planned.sizes[run].gate_flops
        flops[f"dense {run}"] = planned.trained_per_token * planned.sizes[run].dense_flops
    return flops


def _bytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


MIN_GAIN_PER_PROCESS, MIN_GAIN = 0.25, 0.1
"""Gain in throughput from which a larger setup is recommended: per added process, as a share of the throughput per
process in use, and at least in total."""
SHARDINGS: tuple[Sharding | None, ...] = (None, "fsdp")
DIVISIONS: tuple[Parallel, ...] = ("tokens", "runs", "experts")


class Recommendation(NamedTuple):
    """A setup with its expected throughput."""

    setup: TrainSetup
    tokens_per_second: float


def recommend(configs: Sequence[TrainConfig], setup: TrainSetup) -> Recommendation | None:
    """The fastest setup, with at most these processes, whose added processes pay off; None if none fits."""
    planned = PlannedTraining(configs, setup._replace(processes=1, nodes=1, sharding=None, parallel="tokens"))
    candidates = list(_candidates(planned, setup))
    rates = setup.rates(product for one in candidates for product in products_of(one).values())
    best: Recommendation | None = None
    for one in candidates:  # from the simplest on
        throughput = one.setup.processes / seconds_per_token(one, rates)
        if best is not None:
            added = one.setup.processes / best.setup.processes - 1
            gain = throughput / best.tokens_per_second - 1
            if gain <= max(MIN_GAIN, MIN_GAIN_PER_PROCESS * added):
                continue
        best = Recommendation(one.setup, throughput)
    return best


def _candidates(planned: PlannedTraining, setup: TrainSetup) -> Iterator[PlannedTraining]:
    """Setups that fit in memory, fewest processes first."""
    with torch.device("meta"):
        layers = [build_layer(build_layer_config(config, planned.architecture)) for config in planned.configs]
    divisions = DIVISIONS if all(layer.expert_tables for layer in layers) else DIVISIONS[:2]
    for grid in setup.grid.smaller():
        for parallel, sharding in product(divisions, SHARDINGS):
            if grid.processes == 1 and (parallel, sharding) != ("tokens", None):
                continue
            if parallel == "runs" and len(planned.configs) < grid.processes:
                continue
            changed = setup._replace(
                processes=grid.processes, nodes=grid.nodes, sharding=sharding, parallel=parallel, auto_map=False
            )
            try:
                one = planned.on(changed)
            except UserError:
                continue
            if sum(one.memory().values()) <= setup.free_bytes:
                yield one
