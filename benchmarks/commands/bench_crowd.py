"""``python -m benchmarks crowd``: a server under more clients than it has room for."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from typing import Annotated

from pydantic import Field

from benchmarks.commands.bench_browse import SyntheticDatabase, register, serving
from benchmarks.commands.bench_live import Positive, sample_run
from mxd.backend.cli.base import Several
from mxd.trainer.config.base import SAMPLE
from mxd.trainer.errors import UserError


class BenchCrowd(SyntheticDatabase):
    """Browse with wrk at several numbers of connections, then steer with more clients than are served at once.

    Requires the program wrk. Clients that are turned away return when Retry-After says so.
    """

    experts: Positive = 4_096
    """Number of experts."""
    connections: Several[Positive] = (8, 16)
    """Connections of wrk. Comma-separated values are all measured."""
    seconds: Positive = 20
    """Duration of each measurement of wrk in seconds."""
    clients: Annotated[int, Field(gt=0, le=900)] = 256
    """Clients that steer at once."""
    tokens: Annotated[int, Field(gt=0, le=256)] = 64
    """Tokens per variant."""

    def run(self) -> int:
        """Measure and report."""
        from benchmarks.backend.crowd import bench_crowd

        if shutil.which("wrk") is None:
            raise UserError("The program wrk is missing. Install Debian's package: apt-get install wrk")
        run = sample_run()
        with self.made() as (folder, database, _):
            shutil.copytree(SAMPLE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sqlite*"))
            register(run.name, folder, database)
            with serving(folder, database) as (url, process):
                found = bench_crowd(
                    url=url,
                    process=process.pid,
                    sizes=self.sizes,
                    run=run.name,
                    connections=self.connections,
                    seconds=self.seconds,
                    clients=self.clients,
                    tokens=self.tokens,
                )
        steering = found.steering
        low, middle, high = steering.honesty
        lines = [
            f"{it.connections} connections: {it.requests_per_second:,.0f} requests/s, p50 {it.p50_ms:.1f} ms, "
            f"p99 {it.p99_ms:.1f} ms, {it.errors} errors, {it.cpu_ms:.2f} ms of processor time per request"
            for it in found.browsing
        ]
        lines += [
            f"{steering.clients} steering clients: {steering.served_at_once} served at once (first token after "
            f"{steering.first_token_seconds:.1f} s), {steering.refused} refused, {steering.failed} failed",
            f"The refused were told {steering.told_seconds:.0f} s and waited {steering.waited_seconds:.0f} s "
            f"(medians); waited / told: {low:.2f}, {middle:.2f}, {high:.2f} (5th, 50th, 95th percentile); "
            f"{steering.returns:.1f} attempts",
            f"Memory in MB: {found.memory_started_mb:.0f} started, {found.memory_browsed_mb:.0f} browsed, "
            f"{found.memory_loaded_mb:.0f} with the language model, {found.memory_after_mb:.0f} after all had left",
        ]
        self.report(asdict(found), "\n".join(lines))
        return 0 if not steering.failed and not any(it.errors for it in found.browsing) else 1
