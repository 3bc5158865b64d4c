"""``python -m benchmarks busy``: the language model on a machine that another program also uses."""

from __future__ import annotations

from dataclasses import asdict

from benchmarks.commands.bench_live import DEMO_RUN, Positive
from mxd.backend.cli.base import Command, Several
from mxd.backend.cli.main import SPINS
from mxd.trainer.config.base import SAMPLE

LIBRARY_DEFAULT = 300_000
"""Spins of GNU OpenMP while there are no more threads than cores."""


class BenchBusy(Command):
    """Time the demo's language model beside a program that uses a core, by how long idle threads spin."""

    spins: Several[Positive] = (LIBRARY_DEFAULT, int(SPINS), 5_000)
    """Iterations that an idle thread spins before it sleeps. Comma-separated values are all measured."""
    rounds: Positive = 3
    """Number of interleaved rounds; medians are reported."""
    language_model: str = ""
    """Language model. Default: the demo's."""

    def run(self) -> int:
        """Measure and report."""
        from benchmarks.trainer.busy import BusyBench, bench_busy
        from benchmarks.trainer.timing import Machine
        from mxd.trainer.storage.run import Run

        source = self.language_model or Run.load(DEMO_RUN, SAMPLE).language_model_source
        points = bench_busy(source, self.spins, (0, 1), self.rounds)
        lines = [
            f"{point.busy_cores} busy cores, {point.spins:>7,} spins: forward pass {point.forward_ms:,.0f} ms, "
            f"{point.token_ms:,.1f} ms per token"
            for point in points
        ]
        self.report(asdict(BusyBench(points, source, Machine.here("cpu"))), "\n".join(lines))
        return 0
