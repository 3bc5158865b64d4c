"""``python -m benchmarks gates``: speed and memory of choosing K of N experts with each kind of gate."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

from benchmarks.commands.bench_live import Positive
from mxd.backend.cli.base import Command
from mxd.backend.cli.sweep import Several
from mxd.trainer.config import Count

if TYPE_CHECKING:
    from benchmarks.trainer.gates import GatePoint


class BenchGates(Command):
    """Time how long each kind of gate takes to choose K of N experts.

    Times are CPU time of one thread, or wall-clock time on a GPU. A million experts of width 768 need 9 GB.
    """

    width: Several[Positive] = (256, 768)
    """Input width. Comma-separated values are all measured."""
    num_experts: Several[Count] = (4_096, 65_536)
    """Number of experts N. Comma-separated values are all measured."""
    k: Positive = 32
    """Number of active experts K."""
    batch: Several[Positive] = (1, 256)
    """Tokens per batch. Comma-separated values are all measured."""
    rounds: Positive = 5
    """Number of interleaved rounds; medians are reported."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to measure on. Default: a GPU if there is one."""

    def run(self) -> int:
        """Measure and report."""
        import torch

        from benchmarks.trainer.gates import GateBenchSizes, bench_gates

        automatic = "cuda" if torch.cuda.is_available() else "cpu"
        device = automatic if self.device == "auto" else self.device
        if device == "cpu":
            torch.set_num_threads(1)
        sizes = GateBenchSizes(self.width, self.num_experts, self.k, self.batch, self.rounds)
        result = bench_gates(sizes, device)
        self.report(asdict(result), "\n".join(line for point in result.points for line in _format_point(point)))
        return 0


def _format_point(point: GatePoint) -> list[str]:
    head = f"width {point.width}, N {point.num_experts:,}, K {point.k}, {point.batch} tokens per batch"
    return [head] + [
        f"  {it.gate:<24} {it.microseconds_per_token:>10,.1f} µs per token, {it.speedup:7.1f} times as fast as flat, "
        f"{it.flops_share:.2%} of its FLOPs, {it.weight_bytes / 2**20:,.1f} MiB of weights, "
        f"{it.extra_bytes / 2**20:,.1f} MiB extra"
        for it in point.gates
    ]
