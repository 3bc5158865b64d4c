"""``mxd bench generate``, ``identity`` and ``soak``: the live engine, with the shipped sample."""

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

from backend.commands.base import Command
from backend.commands.console import progress
from trainer.config import SAMPLE

if TYPE_CHECKING:
    from trainer.run import Run

Positive = Annotated[int, Field(gt=0)]
NO_SAMPLE = f"The sample is not in {SAMPLE}; get it back with git checkout."


class BenchGenerate(Command):
    """Routing and steering with the shipped sample, against the bare language model."""

    tokens: Annotated[int, Field(gt=0, le=256)] = 128
    """Generated in each arm."""
    rounds: Positive = 3
    """Of which the median counts."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the language model runs."""

    def run(self) -> int:
        """Measure."""
        from backend.bench.served import bench_served
        from trainer.bench.generate import bare_step, bench_generate, routed_text, steering_config
        from trainer.heap import keep_memory_freed_in_threads
        from trainer.language_model import LanguageModel

        keep_memory_freed_in_threads()  # as mxd serve does
        run = sample_run()
        language_model = LanguageModel.load(run.language_model_source, self.device)
        with progress("Measuring", "rounds") as shown:
            found = bench_generate(language_model, run, self.tokens, self.rounds, shown)
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
            f"{served.served_overhead:.2f} times ({served.token_gap_ms:.1f} ms); HTTP adds {served.http_ms:.0f} ms to "
            f"a routing; predictions and KL take {found.predictions_ratio:.2f} forward passes more.",
        )
        return 0


class BenchIdentity(Command):
    """Generations with no edits against transformers without us, over three architectures: how many are identical."""

    generations: Positive = 1000
    """Shared out evenly over the architectures."""
    tokens: Annotated[int, Field(gt=0, le=256)] = 24
    """Of each, at most."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the language models run."""

    def run(self) -> int:
        """Compare."""
        from trainer.bench.identity import bench_identity
        from trainer.language_model import LanguageModel

        run = sample_run()
        language_model = LanguageModel.load(run.language_model_source, self.device)
        with progress("Comparing", "generations") as shown:
            found = bench_identity(language_model, run, self.generations, self.tokens, shown)
        by_name = ", ".join(f"{name} {count}" for name, count in found.architectures.items())
        self.report(
            asdict(found),
            f"{found.identical} of {found.generations} generations ({found.tokens:,} tokens) are those of transformers "
            f"without us ({by_name}).",
        )
        return 0 if found.identical == found.generations else 1


class BenchSoak(Command):
    """A real server under many streaming clients, a third of which leave midway; then it is stopped with SIGTERM."""

    clients: Annotated[int, Field(gt=0, le=128)] = 64
    """That stream at once."""
    seconds: Annotated[int, Field(gt=0, le=3600)] = 300
    """For how long."""

    def run(self) -> int:
        """Soak it."""
        from backend.bench.soak import bench_soak

        run = sample_run()
        with _live_server(run) as (url, process), progress("Soaking", "seconds") as shown:
            found = bench_soak(url, process.pid, run.name, self.clients, self.seconds, shown)
        memory = ", ".join(f"{mb:.0f}" for mb in found.memory_mb)
        self.report(
            asdict(found),
            f"{found.finished} generations read to their end and {found.left} left midway by {found.clients} clients "
            f"in {found.seconds:.0f} s, {found.refused} refused: {found.wrong} wrong, {found.stuck} stuck, "
            f"{found.failed} failed. First token after all had left: {found.after_ms:.0f} ms ({found.alone_ms:.0f} ms "
            f"before they came). Memory of the server in MB: {memory}.",
        )
        return 0 if found.finished and not found.wrong + found.stuck + found.failed else 1


def sample_run() -> Run:
    """The shipped run that is shown first.

    Raises:
        NotFoundError: it is not there.
    """
    from backend.sample import Sample

    return Sample.open(SAMPLE).runs[0]


@contextmanager
def _live_server(run: Run) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server on the shipped run and a store of its own, without an index; stopped with SIGTERM in the end."""
    from backend.database import open_database
    from trainer.registration import register_run

    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'mxd.sqlite'}"
        store = open_database(url)
        register_run(run, store)
        store.dispose()
        flags = ["--data", str(SAMPLE), "--store", url, "--port", "0", "--host", "127.0.0.1"]
        words = [sys.executable, "-m", "backend.cli", "serve", *flags]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                said = process.stdout.readline().split()
                assert said, "the server has not started; its reason is above"
                yield next(word for word in said if word.startswith("http://")), process
            finally:
                process.terminate()
