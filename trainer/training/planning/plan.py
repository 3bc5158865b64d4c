"""Training plan: memory, FLOPs and expected time on this machine, before anything is loaded.

A model on the meta device gives the exact shapes of any architecture, ``cost_model`` the formulas, and
``device_benchmark`` the measured speed. Runs trained on one pass are planned together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import torch

from mxd.trainer.config import TrainConfig
from mxd.trainer.config.methods import max_active
from mxd.trainer.data.activations import PREFETCHED_BUFFERS, SEQUENCES_PER_FORWARD, StreamSpec, prefetches
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.architecture import Architecture
from mxd.trainer.language_model.loading import choose_device, load_outline
from mxd.trainer.layers.ops import ops_on
from mxd.trainer.training.layer_trainer import Experts, build_layer_config, check_processes
from mxd.trainer.training.matmul_precision import product_dtype
from mxd.trainer.training.planning.cost_model import ADAMW_BYTES, FLOAT32, Forward, LayerSizes
from mxd.trainer.training.planning.device_benchmark import (
    DeviceRates,
    Product,
    free_bytes,
    measure,
    resident_bytes,
)
from mxd.trainer.training.planning.dtypes import dtype_name, dtype_of, fastest_dtype
from mxd.trainer.training.planning.results import LayerPlan, TrainPlan
from mxd.trainer.utils.devices import device_name
from mxd.trainer.utils.distributed import AUTO_MAP, ProcessGroup

UTILIZATION = 0.85
"""Share of the measured rates that forward passes and steps reach. Calibrated on CPUs, not on GPUs."""
BUSY_SHARE = 0.95
"""Share of the time in forward passes and steps. The rest is shuffling, metrics, logging and checkpoints."""
CHECKPOINT_BYTES = 12
"""Bytes per parameter in a checkpoint: float32 weight and two moments."""


class TrainSetup(NamedTuple):
    """Device and processes of a training job."""

    device: torch.device
    auto_map: bool = False
    """True if the model is spread over several devices."""
    processes: int = 1
    experts: Experts = "replicated"

    @classmethod
    def from_device_name(cls, device: str, processes: int = 1, experts: Experts = "replicated") -> TrainSetup:
        """Setup on the device of this name."""
        return cls(choose_device(device), device == AUTO_MAP, processes, experts)


class PlannedTraining:
    """Runs to train on one pass, and the outline of their model."""

    def __init__(self, configs: Sequence[TrainConfig], setup: TrainSetup) -> None:
        self.configs, self.setup = list(configs), setup
        self.stream = StreamSpec.from_configs(configs)
        self.stream.plan.shard(ProcessGroup(0, setup.processes))
        for config in configs:
            check_processes(config, setup.processes)
        source = configs[0].language_model
        self.outline = load_outline(source)
        self.architecture = Architecture(self.outline, source)
        dtype, width = configs[0].language_model_dtype, getattr(self.outline.config.get_text_config(), "hidden_size", 0)
        self.dtype = dtype_of(dtype) if dtype else fastest_dtype(setup.device, width)

    @cached_property
    def sizes(self) -> list[LayerSizes]:
        """Sizes of each run's layer."""
        return self._sizes(self.configs)

    @cached_property
    def forward(self) -> Forward:
        """Forward pass of the model, up to the last trained layer."""
        last = max(self.stream.layers)
        self.architecture.block(last)  # raises an error if there is none
        blocks = self.architecture.blocks[: last + 1]
        matrices = sum(weight.numel() for block in blocks for weight in block.parameters() if weight.dim() > 1)
        shape = self.architecture.mlp_shape(last)
        return Forward(last + 1, matrices, shape.input_width, shape.hidden_width, self.stream.plan.context_length)

    def memory(self, configs: Sequence[TrainConfig] | None = None) -> dict[str, int]:
        """Additional peak memory of one process, in bytes by kind."""
        configs = self.configs if configs is None else configs
        plan, world_size = StreamSpec.from_configs(configs).plan, self.setup.processes
        sizes = self._sizes(configs)
        shards = world_size if self.setup.experts == "sharded" else 1
        parameters = sum(layer.dense_parameters + layer.table_parameters // shards for layer in sizes)
        shapes = [self.architecture.mlp_shape(layer) for layer in self.stream.layers]
        buffer_tokens = plan.buffer_tokens // world_size
        buffers = 1 + PREFETCHED_BUFFERS if prefetches(self.setup.device) else 1
        widths = sum(shape.input_width + shape.output_width for shape in shapes)
        step = max(self.step_bytes(layer, plan.batch_tokens // world_size) for layer in sizes)
        return {
            "model weights": 0 if self.setup.auto_map else self.language_model_bytes,
            "layers, gradients and moments": ADAMW_BYTES * parameters,
            "activation buffers": FLOAT32 * buffers * buffer_tokens * widths,
            "step and forward pass": step + self.forward_bytes(buffer_tokens),
        }

    @cached_property
    def language_model_bytes(self) -> int:
        """Bytes of all weights of the model."""
        return self.dtype.itemsize * self.parameters

    def forward_bytes(self, buffer_tokens: int) -> int:
        """Activation memory of a forward pass, for buffers of this size."""
        context = self.stream.plan.context_length
        shapes = [self.architecture.mlp_shape(layer) for layer in self.stream.layers]
        hidden_width = max(shape.hidden_width for shape in shapes)
        sequences = min(SEQUENCES_PER_FORWARD, buffer_tokens // context)
        return sequences * context * self.dtype.itemsize * (4 * hidden_width + 8 * shapes[0].input_width)

    @cached_property
    def parameters(self) -> int:
        """Number of parameters of the model."""
        return sum(weight.numel() for weight in self.outline.parameters())

    def _sizes(self, configs: Sequence[TrainConfig]) -> list[LayerSizes]:
        return [LayerSizes.from_config(build_layer_config(config, self.architecture)) for config in configs]

    def step_bytes(self, sizes: LayerSizes, batch: int) -> int:
        """Memory of a step: tensors kept for the backward pass, and the gate scores that are in memory at once."""
        tokens: int = min(batch, ops_on(self.setup.device).tokens_at_a_time(sizes.num_experts))
        scores = 2 * tokens * sizes.num_experts  # the scores, and what selects the largest
        columns = max_active(sizes.method, sizes.k)
        rows = 2 * sizes.input_width + 6 * sizes.output_width + 3 * sizes.readers * sizes.hidden_width + 6 * columns
        return FLOAT32 * (scores + batch * (rows + 6 * (sizes.rank or 0)))


def plan_training(configs: Sequence[TrainConfig], setup: TrainSetup) -> TrainPlan:
    """Plan runs that are trained together. Benchmarks the device for about a second.

    Raises:
        UserError: the model's config cannot be read, the model has no such layer, or the runs need different batches.
    """
    planned = PlannedTraining(configs, setup)
    products = products_of(planned)
    rates = measure(dict.fromkeys(products.values()), setup.device)
    expected = expected_seconds(planned, rates)
    seconds, flops = sum(expected) / BUSY_SHARE, _flops(planned)
    memory, resident = planned.memory(), resident_bytes()
    tokens = planned.stream.plan.tokens
    rate = setup.processes / seconds
    ideal_seconds = sum(flops[name] / rates.products[product] for name, product in products.items())
    return TrainPlan(
        device=device_name(setup.device),
        processes=setup.processes,
        language_model_dtype=dtype_name(planned.dtype),
        language_model_parameters=planned.parameters,
        language_model_used_parameters=planned.forward.matrix_parameters,
        layers=[_layer_plan(*pair) for pair in zip(configs, planned.sizes, strict=True)],
        memory={"this process": resident} | memory,
        memory_total=resident + sum(memory.values()),
        memory_free=free_bytes(setup.device),
        disk=2 * CHECKPOINT_BYTES * sum(layer.parameters for layer in planned.sizes),
        tokens=tokens,
        flops_per_token=planned.forward.flops + sum(layer.step_flops_per_token for layer in planned.sizes),
        tokens_per_second=rate,
        hours=tokens / rate / 3600,
        share_of_products=ideal_seconds / seconds,
        refusal=_memory_error(planned),
    )


def check_fits_memory(configs: Sequence[TrainConfig], setup: TrainSetup) -> None:
    """Check that training fits into the device's memory.

    Raises:
        UserError: it does not fit (the message has a configuration that would); or as ``plan_training``.
    """
    if (message := _memory_error(PlannedTraining(configs, setup))) is not None:
        raise UserError(message)


def _memory_error(planned: PlannedTraining) -> str | None:
    """Error message with a configuration that would fit; None if this one does."""
    needed, free = sum(planned.memory().values()), free_bytes(planned.setup.device)
    if needed <= free:
        return None
    return f"Training needs {_bytes(needed)} of memory, but only {_bytes(free)} are free. {_suggest(planned, free)}"


def _suggest(planned: PlannedTraining, free: int) -> str:
    """Smallest change that would fit: a smaller buffer, fewer experts, both, or fewer runs."""
    if (weights := planned.memory()["model weights"]) > free:
        return f"The model alone needs {_bytes(weights)}. Use a smaller model or --device=auto-map."

    def fits(configs: Sequence[TrainConfig]) -> bool:
        return sum(planned.memory(configs).values()) <= free

    plan = planned.stream.plan
    for size in _halves(plan.buffer_tokens, plan.batch_tokens):
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
    counts = _round_numbers(max(layer.num_experts for layer in planned.sizes))
    fitting = [n for n in counts if n >= min_experts and fits(_with_experts(planned.configs, n))]
    return max(fitting, default=0)


def _round_numbers(limit: int) -> list[int]:
    """Numbers below ``limit`` with two significant digits: 1, 2, … 99, 100, 110, …."""
    powers = range(len(str(limit)))
    return sorted({digits * 10**power for power in powers for digits in range(1, 100) if digits * 10**power < limit})


def _halves(size: int, unit: int) -> list[int]:
    """A half of ``size``, a quarter and so on, as multiples of ``unit``."""
    steps = size // unit
    return [unit * (steps >> shift) for shift in range(1, steps.bit_length()) if steps >> shift]


def _with_buffer(configs: Sequence[TrainConfig], buffer_tokens: int) -> list[TrainConfig]:
    def resized(config: TrainConfig) -> TrainConfig:
        optimizer = config.optimizer.model_copy(update={"buffer_tokens": buffer_tokens})
        return config.model_copy(update={"optimizer": optimizer})

    return [resized(config) for config in configs]


def _with_experts(configs: Sequence[TrainConfig], count: int) -> list[TrainConfig]:
    return [config.model_copy(update={"num_experts": count}) for config in configs]


def products_of(planned: PlannedTraining) -> dict[str, Product]:
    """Representative matrix products of the model, and of each layer's gate and dense part."""
    plan, forward = planned.stream.plan, planned.forward
    batch = plan.batch_tokens // planned.setup.processes
    rows = min(SEQUENCES_PER_FORWARD * plan.context_length, plan.buffer_tokens)
    products = {"model": Product(rows, forward.width, forward.hidden_width, planned.dtype)}
    for number, (config, layer) in enumerate(zip(planned.configs, planned.sizes, strict=True)):
        # As in training, where sharded experts stay in float32.
        precision = config.optimizer.matmul_precision if planned.setup.experts == "replicated" else "highest"
        dtype = product_dtype(precision, planned.setup.device, layer.input_width)
        products[f"gate {number}"] = Product(batch, layer.input_width, layer.num_experts, dtype)
        products[f"dense {number}"] = Product(batch, layer.input_width, layer.hidden_width, dtype)
    return products


class ExpectedSeconds(NamedTuple):
    """Expected seconds per token of one process."""

    forward: float
    """Forward pass of the model."""
    steps: float
    """Training steps of all runs."""


def expected_seconds(planned: PlannedTraining, rates: DeviceRates) -> ExpectedSeconds:
    """Expected time from the measured rates of ``products_of``. Rows are gathered at memory bandwidth."""
    products, flops = products_of(planned), _flops(planned)
    seconds = {name: count / rates.products[products[name]] for name, count in flops.items()}
    batch = planned.stream.plan.batch_tokens // planned.setup.processes
    forward = seconds.pop("model")
    elementwise = planned.forward.elementwise_bytes(planned.dtype.itemsize) / rates.bytes_per_second
    gathering = sum(layer.step_bytes_per_token(batch) for layer in planned.sizes) / rates.bytes_per_second
    return ExpectedSeconds((forward + elementwise) / UTILIZATION, (sum(seconds.values()) + gathering) / UTILIZATION)


def _flops(planned: PlannedTraining) -> dict[str, float]:
    """FLOPs per token of each product."""
    flops: dict[str, float] = {"model": planned.forward.flops}
    for number, layer in enumerate(planned.sizes):
        flops[f"gate {number}"] = layer.gate_flops
        flops[f"dense {number}"] = layer.dense_flops
    return flops


def _layer_plan(config: TrainConfig, sizes: LayerSizes) -> LayerPlan:
    return LayerPlan(
        run=config.name,
        method=config.method,
        layer=config.layer,
        num_experts=sizes.num_experts,
        k=sizes.k,
        parameters=sizes.parameters,
        step_flops_per_token=sizes.step_flops_per_token,
    )


def _bytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
