"""What ``mxd train`` takes of this machine, said before anything is loaded; and what would fit where it is too much.

Modules without weights give the exact shapes of any architecture, ``planning`` the formulas, ``rates`` what the device
was measured to do. All runs of a pass are planned together, as they are fitted.

Shapes: T tokens of a window, B tokens of a step, I input width, H hidden width, O output width, N experts, W processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch

from trainer.activations import SEQUENCES_PER_FORWARD, WINDOWS_AHEAD, Stream
from trainer.anatomy import Anatomy
from trainer.config import SPREAD, TrainConfig
from trainer.distributed import Ranks
from trainer.errors import UserError
from trainer.fitting import Experts, layer_config_of
from trainer.layers.stock_ops import SCORES_AT_A_TIME
from trainer.loading import choose_device, load_outline
from trainer.methods import EVERY_EXPERT, routed_columns
from trainer.planning import ADAMW_BYTES, FLOAT32, Forward, LayerSizes
from trainer.precision import dtype_name, dtype_of, fitting_dtype
from trainer.rates import Product, Rates, device_name, free_bytes, measure, resident_bytes

REACHED = 0.85
"""Share of the rate of single products and of memory that forward passes and steps reached, fitted on CPUs; on a GPU
it has not been."""
PIPELINE = 0.95
"""Share of the time in which forward passes and steps run; the rest is shuffling, watching, logging, checkpoints."""
CHECKPOINT_BYTES = 12
"""A parameter and its two moments."""


@dataclass(frozen=True)
class LayerPlan:
    """One run."""

    run: str
    method: str
    layer: int
    num_experts: int
    k: int
    gate: str
    parameters: int
    step_flops_per_token: int


@dataclass(frozen=True)
class FitPlan:
    """What ``mxd train --plan`` reports."""

    device: str
    processes: int
    language_model_dtype: str
    language_model_parameters: int
    language_model_used_parameters: int
    """Of matrices in the blocks that are run."""
    layers: list[LayerPlan]
    memory: dict[str, int]
    """Bytes by kind, of one process."""
    memory_total: int
    memory_free: int
    """Bytes that the device has left."""
    disk: int
    """Bytes of checkpoints while a new one is written beside the last."""
    tokens: int
    flops_per_token: int
    """Of the language model and all runs."""
    tokens_per_second: float
    """Expected of all processes, where each has a device like this one."""
    hours: float
    share_of_products: float
    """Of the arithmetic rate that products alone were measured to reach on this device."""
    refusal: str | None
    """Where it does not fit: by how much, and what would."""


class Setting(NamedTuple):
    """Where and with how many processes runs are to be fitted."""

    device: torch.device
    spread: bool = False
    """Whether the language model is spread over several devices."""
    processes: int = 1
    experts: Experts = "copied"

    @classmethod
    def of(cls, device: str, processes: int = 1, experts: Experts = "copied") -> Setting:
        """With the device that a name means."""
        return cls(choose_device(device), device == SPREAD, processes, experts)


class Fitting:
    """Some runs that are to be fitted on one pass, and the outline of their language model."""

    def __init__(self, configs: Sequence[TrainConfig], setting: Setting) -> None:
        self.configs, self.setting = list(configs), setting
        self.stream = Stream.of(configs)
        self.stream.plan.share(Ranks(0, setting.processes))
        source = configs[0].language_model
        self.outline = load_outline(source)
        self.anatomy = Anatomy(self.outline, source)
        named, width = configs[0].language_model_dtype, getattr(self.outline.config.get_text_config(), "hidden_size", 0)
        self.dtype = dtype_of(named) if named else fitting_dtype(setting.device, width)

    @cached_property
    def sizes(self) -> list[LayerSizes]:
        """Of each run's layer."""
        return self._sizes(self.configs)

    @cached_property
    def forward(self) -> Forward:
        """The part of the language model that is run."""
        last = max(self.stream.layers)
        self.anatomy.block(last)  # says so where there is none
        run = self.anatomy.blocks[: last + 1]
        matrices = sum(it.numel() for block in run for it in block.parameters() if it.dim() > 1)
        shape = self.anatomy.mlp_shape(last)
        return Forward(last + 1, matrices, shape.input_width, shape.hidden_width, self.stream.plan.context)

    def memory(self, configs: Sequence[TrainConfig] | None = None) -> dict[str, int]:
        """Bytes by kind that one process holds at its peak, beside what it holds now."""
        configs = self.configs if configs is None else configs
        plan, world = Stream.of(configs).plan, self.setting.processes
        sizes = self._sizes(configs)
        spread = self.setting.experts == "spread"
        held = sum(it.dense_parameters + it.table_parameters // (world if spread else 1) for it in sizes)
        shapes = [self.anatomy.mlp_shape(layer) for layer in self.stream.layers]
        window = plan.window // world
        windows = 1 + WINDOWS_AHEAD if self.setting.device.type == "cuda" else 1
        passed = sum(shape.input_width + shape.output_width for shape in shapes)
        step = max(self.step_bytes(it, plan.batch // world) for it in sizes)
        return {
            "language model": 0 if self.setting.spread else self.language_model_bytes,
            "layers, gradients and moments": ADAMW_BYTES * held,
            "windows of activations": FLOAT32 * windows * window * passed,
            "a step and a forward pass": step + self.forward_bytes(window),
        }

    @cached_property
    def language_model_bytes(self) -> int:
        """Of the weights of the whole language model."""
        return self.dtype.itemsize * self.parameters

    def forward_bytes(self, window: int) -> int:
        """What a forward pass holds beside the weights, where a window has so many tokens."""
        context = self.stream.plan.context
        shapes = [self.anatomy.mlp_shape(layer) for layer in self.stream.layers]
        hidden, sequences = max(it.hidden_width for it in shapes), min(SEQUENCES_PER_FORWARD, window // context)
        return sequences * context * self.dtype.itemsize * (4 * hidden + 8 * shapes[0].input_width)

    @cached_property
    def parameters(self) -> int:
        """Of the whole language model."""
        return sum(it.numel() for it in self.outline.parameters())

    def _sizes(self, configs: Sequence[TrainConfig]) -> list[LayerSizes]:
        return [LayerSizes.of(layer_config_of(it, self.anatomy)) for it in configs]

    @staticmethod
    def step_bytes(sizes: LayerSizes, batch: int) -> int:
        """What a step holds for its backward pass, and a block of scores."""
        everywhere = sizes.method in EVERY_EXPERT
        made = batch * sizes.gate_sizes.scores
        scores = 4 * made if everywhere else min(made, SCORES_AT_A_TIME)
        columns = routed_columns(sizes.method, sizes.k)
        rows = 2 * sizes.input_width + 6 * sizes.output_width + 3 * sizes.readers * sizes.hidden_width + 6 * columns
        return FLOAT32 * (2 * scores + batch * (rows + 6 * (sizes.rank or 0)))


def plan_fit(configs: Sequence[TrainConfig], setting: Setting) -> FitPlan:
    """Plan some runs that are fitted together; measures the device for about a second.

    Raises:
        UserError: the language model's config cannot be read, has no such layer or MLP, or the runs do not go together.
    """
    fitting = Fitting(configs, setting)
    products = products_of(fitting)
    rates = measure(dict.fromkeys(products.values()), setting.device)
    expected = expected_seconds(fitting, rates)
    seconds, flops = sum(expected) / PIPELINE, _flops(fitting)
    memory, program = fitting.memory(), resident_bytes()
    tokens = fitting.stream.plan.tokens
    rate = setting.processes / seconds
    at_best = sum(flops[name] / rates.products[product] for name, product in products.items())
    return FitPlan(
        device=device_name(setting.device),
        processes=setting.processes,
        language_model_dtype=dtype_name(fitting.dtype),
        language_model_parameters=fitting.parameters,
        language_model_used_parameters=fitting.forward.matrix_parameters,
        layers=[_layer_plan(*pair) for pair in zip(configs, fitting.sizes, strict=True)],
        memory={"this program": program} | memory,
        memory_total=program + sum(memory.values()),
        memory_free=free_bytes(setting.device),
        disk=2 * CHECKPOINT_BYTES * sum(it.parameters for it in fitting.sizes),
        tokens=tokens,
        flops_per_token=fitting.forward.flops + sum(it.step_flops_per_token for it in fitting.sizes),
        tokens_per_second=rate,
        hours=tokens / rate / 3600,
        share_of_products=at_best / seconds,
        refusal=_refusal(fitting),
    )


def refuse_too_large(configs: Sequence[TrainConfig], setting: Setting) -> None:
    """See at once that fitting has room on the device.

    Raises:
        UserError: it has not, and what would fit; or as ``plan_fit``.
    """
    if (refusal := _refusal(Fitting(configs, setting))) is not None:
        raise UserError(refusal)


def _refusal(fitting: Fitting) -> str | None:
    """Why it does not fit and what would; None where it does."""
    needed, free = sum(fitting.memory().values()), free_bytes(fitting.setting.device)
    if needed <= free:
        return None
    return f"Fitting needs {_bytes(needed)} and {_bytes(free)} are free; {_what_would_fit(fitting, free)}."


def _what_would_fit(fitting: Fitting, free: int) -> str:
    """The smallest change with which fitting has room: a smaller window, fewer experts, both, or fewer runs."""
    if (weights := fitting.memory()["language model"]) > free:
        return f"the language model alone needs {_bytes(weights)}; take a smaller one, or --device spread"

    def room(configs: Sequence[TrainConfig]) -> bool:
        return sum(fitting.memory(configs).values()) <= free

    window, batch = fitting.stream.plan.window, fitting.stream.plan.batch
    narrow = next((size for size in _halves(window, batch) if room(_with_window(fitting.configs, size))), None)
    if narrow is not None:
        return f"--window {narrow} would fit"
    if found := _most_experts(fitting, room):
        return f"--num-experts {found} would fit"
    least = _with_window(fitting.configs, batch)
    if found := _most_experts(fitting, lambda configs: room(_with_window(configs, batch))):
        return f"--num-experts {found} with --window {batch} would fit"
    together = next((count for count in range(len(least) - 1, 0, -1) if room(least[:count])), 0)
    if together:
        return f"{together} of these {len(least)} runs at a time with --window {batch} would fit"
    return "a smaller --batch, or a smaller language model, might"


def _most_experts(fitting: Fitting, room: Callable[[Sequence[TrainConfig]], bool]) -> int:
    """The largest N, of two digits, with which all runs have room; 0 where even K experts have none."""
    least = max(config.k for config in fitting.configs)
    fits = [
        count
        for count in _round_numbers(max(it.num_experts for it in fitting.sizes))
        if count >= least and room(_with_experts(fitting.configs, count))
    ]
    return max(fits, default=0)


def _round_numbers(below: int) -> list[int]:
    """1, 2, … 9, 10, 11, … 99, 100, 110, …: those of two digits and zeros, up to ``below``."""
    powers = range(len(str(below)))
    return sorted({digits * 10**power for power in powers for digits in range(1, 100) if digits * 10**power < below})


def _halves(size: int, least: int) -> list[int]:
    """A half of ``size``, a quarter, and so on, whole multiples of ``least``."""
    steps = size // least
    return [least * (steps >> shift) for shift in range(1, steps.bit_length()) if steps >> shift]


def _with_window(configs: Sequence[TrainConfig], window: int) -> list[TrainConfig]:
    return [it.model_copy(update={"optimizer": it.optimizer.model_copy(update={"window": window})}) for it in configs]


def _with_experts(configs: Sequence[TrainConfig], count: int) -> list[TrainConfig]:
    return [it.model_copy(update={"num_experts": count}) for it in configs]


def products_of(fitting: Fitting) -> dict[str, Product]:
    """What the products of a pass are like: the language model's; and of each layer the gate's and the dense ones."""
    plan, forward = fitting.stream.plan, fitting.forward
    batch = plan.batch // fitting.setting.processes
    rows = min(SEQUENCES_PER_FORWARD * plan.context, plan.window)
    found = {"language model": Product(rows, forward.width, forward.hidden_width, fitting.dtype)}
    for number, it in enumerate(fitting.sizes):
        for part, (tokens, columns, _) in enumerate(it.gate_sizes.products(batch)):
            found[f"gate {number}.{part}"] = Product(tokens, it.input_width, columns, torch.float32)
        found[f"dense {number}"] = Product(batch, it.input_width, it.hidden_width, torch.float32)
    return found


class Expected(NamedTuple):
    """Seconds that a token takes one process."""

    forward: float
    """In the language model."""
    steps: float
    """In the steps of all runs."""


def expected_seconds(fitting: Fitting, rates: Rates) -> Expected:
    """From measured rates of all products of ``products_of``; rows are gathered at the speed of memory."""
    products, flops = products_of(fitting), _flops(fitting)
    seconds = {name: amount / rates.products[products[name]] for name, amount in flops.items()}
    batch = fitting.stream.plan.batch // fitting.setting.processes
    forward = seconds.pop("language model")
    passing = fitting.forward.passing_bytes(fitting.dtype.itemsize) / rates.bytes_per_second
    gathering = sum(it.step_bytes_per_token(batch) for it in fitting.sizes) / rates.bytes_per_second
    return Expected((forward + passing) / REACHED, (sum(seconds.values()) + gathering) / REACHED)


def _flops(fitting: Fitting) -> dict[str, float]:
    """A token's arithmetic of each kind that products do."""
    flops: dict[str, float] = {"language model": fitting.forward.flops}
    batch = fitting.stream.plan.batch // fitting.setting.processes
    for number, it in enumerate(fitting.sizes):
        for part, made in enumerate(it.gate_sizes.products(batch)):
            flops[f"gate {number}.{part}"] = it.heads * made.flops_per_token
        flops[f"dense {number}"] = it.dense_flops
    return flops


def _layer_plan(config: TrainConfig, sizes: LayerSizes) -> LayerPlan:
    return LayerPlan(
        run=config.name,
        method=config.method,
        layer=config.layer,
        num_experts=sizes.num_experts,
        k=sizes.k,
        gate=sizes.gate.gate,
        parameters=sizes.parameters,
        step_flops_per_token=sizes.step_flops_per_token,
    )


def _bytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
