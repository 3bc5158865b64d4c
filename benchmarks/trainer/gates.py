"""Speed and memory of choosing K of N experts with each kind of gate, on random weights.

Shapes: N experts, I input width, K active experts, B tokens per batch.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from benchmarks.trainer.memory import extra_peak_bytes
from benchmarks.trainer.timing import Machine, in_turn, median_ratio
from mxd.trainer.config.gates import GateConfig, GateForm, GateSizes, resolve_gate
from mxd.trainer.layers.gates import Gate, build_gate


@dataclass(frozen=True)
class GateTiming:
    """Speed and memory of one gate."""

    gate: str
    """Kind of gate, with its group counts."""
    microseconds_per_token: float
    """Time per token: CPU time of one thread, or wall-clock time on a GPU."""
    speedup: float
    """Median over rounds of the flat gate's time divided by this gate's time."""
    flops_per_token: int
    flops_share: float
    """FLOPs relative to the flat gate."""
    weight_bytes: int
    extra_bytes: float
    """Peak memory beyond the weights."""


@dataclass(frozen=True)
class GatePoint:
    """Timings of every gate at one size."""

    width: int
    num_experts: int
    k: int
    batch: int
    gates: tuple[GateTiming, ...]


@dataclass(frozen=True)
class GateBench:
    """Result of ``python -m benchmarks gates``."""

    points: tuple[GatePoint, ...]
    machine: Machine


@dataclass(frozen=True)
class GateBenchSizes:
    """Sizes to measure: every combination of width, N and batch."""

    widths: Sequence[int]
    num_experts: Sequence[int]
    k: int
    batches: Sequence[int]
    rounds: int


@torch.inference_mode()
def bench_gates(sizes: GateBenchSizes, device: str) -> GateBench:
    """Measure every gate at every combination of sizes."""
    points: list[GatePoint] = []
    for width in sizes.widths:
        for num_experts in sizes.num_experts:
            configs = [resolve_gate(GateConfig(gate=form), num_experts, sizes.k) for form in get_args(GateForm)]
            gates = [(config, build_gate(config, width, num_experts, sizes.k).to(device)) for config in configs]
            points += [_point(gates, torch.randn(batch, width, device=device), sizes) for batch in sizes.batches]
    return GateBench(tuple(points), Machine.here(device))


def _point(gates: Sequence[tuple[GateConfig, Gate]], x_BI: Tensor, sizes: GateBenchSizes) -> GatePoint:
    device = x_BI.device.type
    calls: dict[str, Callable[[], object]] = {config.gate: _choose(gate, x_BI, sizes.k) for config, gate in gates}
    clock = time.thread_time if device == "cpu" else time.perf_counter
    seconds = in_turn(calls, sizes.rounds, clock=clock)
    flat = gates[0][1]
    timings = []
    for config, gate in gates:
        gate_sizes = GateSizes(config, gate.num_experts, gate.input_width)
        timings.append(
            GateTiming(
                gate=config.describe(),
                microseconds_per_token=1e6 * statistics.median(seconds[config.gate]) / len(x_BI),
                speedup=median_ratio(seconds["flat"], seconds[config.gate]),
                flops_per_token=gate_sizes.flops,
                flops_share=gate_sizes.flops / (2 * gate.input_width * gate.num_experts),
                weight_bytes=4 * gate_sizes.parameters,
                extra_bytes=extra_peak_bytes(calls[config.gate], device),
            )
        )
    return GatePoint(flat.input_width, flat.num_experts, sizes.k, len(x_BI), tuple(timings))


def _choose(gate: Gate, x_BI: Tensor, k: int) -> Callable[[], object]:
    return lambda: gate.choose(x_BI, k)
