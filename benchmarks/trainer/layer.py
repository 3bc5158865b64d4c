"""One training step (forward, backward, optimiser): the sparse layer against the same equations computed densely.

Shapes: B tokens per step, I input width, O output width, N experts, K active.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from benchmarks.trainer.memory import extra_peak_bytes
from benchmarks.trainer.timing import Machine, Rounds, median_ratio
from mxd.trainer.config.layer import LayerConfig
from mxd.trainer.layers.mxd import MxD, normalized_mse
from mxd.trainer.layers.variants import build_layer
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks

Form = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class StepSizes:
    """Sizes of a step and of its layer."""

    num_experts: int
    k: int
    tokens: int


@dataclass(frozen=True)
class LayerPoint:
    """Measurements of both forms at one size."""

    num_experts: int
    k: int
    tokens: int
    speedup: float
    """Median over rounds of dense time / sparse time, the dense form with torch's default AdamW."""
    cpu_speedup: float
    """Median ratio of CPU time, which other work on the machine disturbs less."""
    memory_ratio: float
    """Peak memory of a sparse step divided by that of a dense one, beyond weights, moments and gradients."""
    gradient_error: float
    """Largest relative difference of any parameter's gradient."""
    dense_seconds: float
    sparse_seconds: float
    dense_extra_bytes: float
    sparse_extra_bytes: float


@dataclass(frozen=True)
class LayerBench:
    """Result of ``python -m benchmarks layer``."""

    points: tuple[LayerPoint, ...]
    width: int
    hidden_width: int
    machine: Machine


def dense_output(layer: MxD, x_BI: Tensor) -> Tensor:
    """The paper's equation as in its own code: every product over all N experts."""
    scores_BN = torch.relu(layer.gate(x_BI))
    top = scores_BN.topk(layer.config.k, dim=1)
    activations_BN = torch.zeros_like(scores_BN).scatter(1, top.indices, top.values)
    return (activations_BN @ layer.scaling_NO) * layer.dense_output(x_BI) + layer.output_bias


def bench_layer(
    *,
    width: int,
    hidden_width: int,
    sizes: Sequence[StepSizes],
    rounds: int,
    device: str,
    callbacks: Callbacks = NO_CALLBACKS,
) -> LayerBench:
    """Time both forms on random data at each of the given sizes."""
    timing = Rounds(len(sizes), rounds, callbacks)
    points = tuple(_point(width, hidden_width, each, timing, device) for each in sizes)
    return LayerBench(points, width, hidden_width, Machine.here(device))


def _point(width: int, hidden_width: int, sizes: StepSizes, timing: Rounds, device: str) -> LayerPoint:
    config = LayerConfig(
        input_width=width,
        hidden_width=hidden_width,
        output_width=width,
        num_experts=sizes.num_experts,
        k=sizes.k,
        activation="gelu",
        encoder="mlp",
    )
    torch.manual_seed(0)
    layer = build_layer(config).to(device)
    assert isinstance(layer, MxD)
    torch.nn.init.normal_(layer.decoder.weight, std=0.02)  # at zero, half of the gradients would be zero
    x_BI, y_BO = (torch.randn(sizes.tokens, width, device=device) for _ in range(2))
    forms: dict[str, Form] = {"dense": lambda x: dense_output(layer, x), "sparse": lambda x: layer(x).output_TO}
    gradients = [_gradients(layer, form, x_BI, y_BO) for form in forms.values()]
    error = max(float((a - b).norm() / a.norm()) for a, b in zip(*gradients, strict=True))
    # The dense form uses torch's default AdamW, like the paper's code; ours is fused.
    usual = torch.optim.AdamW(layer.parameters(), lr=1e-4, weight_decay=0.0)
    fused = torch.optim.AdamW(layer.parameters(), lr=1e-4, weight_decay=0.0, fused=True)
    steps = {"dense": _step(forms["dense"], usual, x_BI, y_BO), "sparse": _step(forms["sparse"], fused, x_BI, y_BO)}
    cpu_seconds: dict[str, list[float]] = {name: [] for name in steps}
    note = f"N {sizes.num_experts:,}, K {sizes.k}, {sizes.tokens:,} tokens"
    seconds = timing.take({name: _counted(step, cpu_seconds[name]) for name, step in steps.items()}, note)
    extra = {name: _extra(step, layer, device) for name, step in steps.items()}
    return LayerPoint(
        **asdict(sizes),
        speedup=median_ratio(seconds["dense"], seconds["sparse"]),
        cpu_speedup=median_ratio(cpu_seconds["dense"], cpu_seconds["sparse"]),
        memory_ratio=extra["sparse"] / extra["dense"],
        gradient_error=error,
        dense_seconds=statistics.median(seconds["dense"]),
        sparse_seconds=statistics.median(seconds["sparse"]),
        dense_extra_bytes=extra["dense"],
        sparse_extra_bytes=extra["sparse"],
    )


def _gradients(layer: MxD, form: Form, x_BI: Tensor, y_BO: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(normalized_mse(form(x_BI), y_BO), list(layer.parameters())))


def _step(form: Form, optimizer: torch.optim.Optimizer, x_BI: Tensor, y_BO: Tensor) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        normalized_mse(form(x_BI), y_BO).backward()
        optimizer.step()

    return step


def _counted(step: Callable[[], None], cpu_seconds: list[float]) -> Callable[[], None]:
    """Run a step and record its CPU time."""

    def counted() -> None:
        before = time.process_time()
        step()
        cpu_seconds.append(time.process_time() - before)

    return counted


def _extra(step: Callable[[], None], layer: MxD, device: str) -> float:
    """Peak memory of a step in bytes, beyond weights, moments and gradients, which every step needs."""
    layer.zero_grad()
    return extra_peak_bytes(step, device) - 4 * layer.num_parameters
