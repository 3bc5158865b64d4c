"""``python -m benchmarks generate``, ``identity`` and ``soak``: the live engine on the demo."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from mxd.backend.cli.base import Command
from mxd.backend.cli.console import task
from mxd.trainer.config.base import SAMPLE

if TYPE_CHECKING:
    from mxd.trainer.storage.run import Run

DEMO_RUN = "smollm2-l22"
"""Run of the demo that is measured."""
Positive = Annotated[int, Field(gt=0)]
NO_SAMPLE = f"The demo is missing from {SAMPLE}. Restore it with git checkout."


class BenchGenerate(Command):
    """Time routing and steering on the demo against the bare language model."""

    tokens: Annotated[int, Field(gt=0, le=256)] = 128
    """Tokens generated per variant."""
    rounds: Positive = 3
    """Number of interleaved rounds; medians are reported."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of the language model."""

    def run(self) -> int:
        """Measure and report."""
        from benchmarks.backend.served import bench_served
        from benchmarks.trainer.generate import bare_step, bench_generate, routed_text, steering_config
        from mxd.trainer.language_model.model import LanguageModel
        from mxd.trainer.utils.memory import keep_freed_memory_in_threads

        keep_freed_memory_in_threads()  # as mxd serve does
        run = sample_run()
        language_model = LanguageModel.load(run.language_model_source, self.device)
        with task("Measuring", "rounds") as callbacks:
            found = bench_generate(language_model, run, self.tokens, self.rounds, callbacks)
        steering = steering_config(run, self.tokens, 0)
        bare = partial(bare_step, language_model, run, steering)
        with _live_server(run) as (url, _):
            body = steering.model_dump(mode="json")
            served = bench_served(url, run.name, routed_text(language_model), body, bare, self.rounds)
        self.report(
            {**asdict(found), **asdict(served)},
            f"Routing takes {found.routing_ratio:.2f} times a bare forward pass ({found.routing_ms:.0f} ms and "
            f"{found.forward_ms:.0f} ms); a default and steered pair is {found.pair_speedup:.2f} times as fast as two "
            f"plain generations; 8 together are {found.batch_speedup:.2f} times as fast as one after the other; "
            f"telling tokens makes a step {found.stream_overhead:.2f} times as long, a server "
            f"{served.served_overhead:.2f} times ({served.token_gap_ms:.1f} ms); HTTP adds "
            f"{served.served_routing_ms - found.routing_ms:.0f} ms to a routing; predictions and KL take "
            f"{found.predictions_ratio:.2f} forward passes more.",
        )
        return 0


class BenchIdentity(Command):
    """Compare generations without edits with plain transformers, on three architectures."""

    generations: Positive = 1000
    """Number of generations, divided over the architectures."""
    tokens: Annotated[int, Field(gt=0, le=256)] = 24
    """Tokens per generation, at most."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of the language models."""

    def run(self) -> int:
        """Compare and report."""
        from benchmarks.trainer.identity import bench_identity
        from mxd.trainer.language_model.model import LanguageModel

        run = sample_run()
        language_model = LanguageModel.load(run.language_model_source, self.device)
        with task("Comparing", "generations") as callbacks:
            found = bench_identity(language_model, run, self.generations, self.tokens, callbacks)
        by_name = ", ".join(f"{name} {count}" for name, count in found.architectures.items())
        self.report(
            asdict(found),
            f"{found.identical} of {found.generations} generations ({found.tokens:,} tokens) are those of transformers "
            f"without us ({by_name}).",
        )
        return 0 if found.identical == found.generations else 1


class BenchSoak(Command):
    """Run a real server under many streaming clients, a third of which disconnect midway; then stop it with SIGTERM."""

    clients: Annotated[int, Field(gt=0, le=128)] = 64
    """Simultaneous streaming clients."""
    seconds: Annotated[int, Field(gt=0, le=3600)] = 300
    """Duration in seconds."""

    def run(self) -> int:
        """Run and report."""
        from benchmarks.backend.soak import bench_soak

        run = sample_run()
        with _live_server(run) as (url, process), task("Soaking", "seconds") as callbacks:
            found = bench_soak(url, process.pid, run.name, self.clients, self.seconds, callbacks)
        memory = ", ".join(f"{mb:.0f}" for mb in found.memory_mb)
        self.report(
            asdict(found),
            f"{found.finished} generations read to their end and {found.left} left midway by {found.clients} clients "
            f"in {found.seconds:.0f} s, {found.refused} refused: {found.wrong} wrong, {found.stuck} stuck, "
            f"{found.failed} failed. First token after all had left: {found.after_ms:.0f} ms ({found.alone_ms:.0f} ms "
            f"before they came). Memory of the server in MB: {memory}.",
        )
        return 0 if found.finished and not found.wrong + found.stuck + found.failed else 1


def sample_run(name: str = DEMO_RUN) -> Run:
    """Return a run of the demo, by default the main one.

    Raises:
        NotFoundError: it is missing.
    """
    from mxd.trainer.storage.run import Run

    return Run.load(name, SAMPLE)


@contextmanager
def _live_server(run: Run) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a server on the demo's run with its own database, without an index; stop it with SIGTERM at the end."""
    from mxd.backend.database.engine import open_database
    from mxd.trainer.storage.run_records import register_run

    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'mxd.sqlite'}"
        database = open_database(url)
        register_run(run, database)
        database.dispose()
        flags = ["--data", str(SAMPLE), "--database", url, "--port", "0", "--host", "127.0.0.1"]
        words = [sys.executable, "-m", "mxd.backend.cli.main", "serve", *flags]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                said = process.stdout.readline().split()
                assert said, "the server has not started; its reason is above"
                yield next(word for word in said if word.startswith("http://")), process
            finally:
                process.terminate()
