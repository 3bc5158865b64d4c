"""``python -m benchmarks browse`` and ``load``: a server on a synthetic database under many requests."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from benchmarks.commands.bench_live import NO_SAMPLE, Positive, sample_run
from mxd.backend.cli.base import Command
from mxd.backend.cli.console import task
from mxd.trainer.config.base import SAMPLE
from mxd.trainer.errors import UserError

if TYPE_CHECKING:
    from benchmarks.backend.database import Sizes
    from benchmarks.backend.load import Load

RECOVERY_WANTED_SECONDS = 5
TEST_DEMO = Path(__file__).resolve().parents[2] / "tests" / "demo"


class SyntheticDatabase(Command):
    """Options shared by both: a synthetic database in SQLite or PostgreSQL."""

    experts: Positive = 86_015
    """Number of experts."""
    examples_per_expert: Positive = 40
    """Examples per expert."""
    sequences: Annotated[int, Field(ge=0)] = 0
    """Token sequences that contain the examples. 0: as many as 10M tokens hold."""
    keep: Path | None = None
    """Folder that keeps the database for later calls."""
    database: str | None = None
    """URL of a separate database, such as postgresql://USER@HOST/DATABASE. It is kept and reused. Default: SQLite in
    the folder."""

    @property
    def sizes(self) -> Sizes:
        """Sizes of the database."""
        from benchmarks.backend.database import Sizes

        return Sizes(self.experts, self.examples_per_expert, self.sequences)

    @contextmanager
    def made(self) -> Iterator[tuple[Path, str, int]]:
        """Yield data folder, URL and size of the database."""
        from benchmarks.backend.database import write_database
        from mxd.trainer.storage.database.open import sqlite_url

        with _folder(self.keep) as folder:
            url = self.database or sqlite_url(folder)
            print(f"Writing {self.experts * self.examples_per_expert:,} examples, unless they exist", file=sys.stderr)
            yield folder, url, write_database(folder, url, tokenizer_folder(), self.sizes)


class BenchBrowse(SyntheticDatabase):
    """Time browsing: send a server on a synthetic database every kind of request that pages make."""

    rounds: Positive = 100
    """Requests per query, sequentially."""
    rate: Positive = 200
    """Requests per second afterwards, all queries in rotation."""
    seconds: Positive = 60
    """Duration of that load in seconds."""

    def run(self) -> int:
        """Measure and report."""
        from benchmarks.backend.browse import bench_browse

        with self.made() as (folder, database, database_bytes), serving(folder, database) as (url, _):
            found = bench_browse(url, self.sizes, database_bytes, self.rounds, self.rate, self.seconds)
        lines = [f"{name:<34} {it.p50_ms:8.1f} {it.p95_ms:8.1f} {it.p99_ms:8.1f}" for name, it in found.queries.items()]
        words = [
            f"{'milliseconds':<34} {'p50':>8} {'p95':>8} {'p99':>8}",
            *lines,
            f"{_describe(found.load)}; {found.bytes_per_example:,.0f} bytes per example, "
            f"{found.examples / found.sequences:.0f} examples per sequence",
        ]
        self.report(asdict(found), "\n".join(words))
        return 0


class BenchLoad(SyntheticDatabase):
    """Browse and stream together, with a third of the clients disconnecting; then ten times that; then normal load.

    The exit code is 1 if anything but rejections went wrong, or if recovery took more than five seconds.
    """

    rate: Annotated[int, Field(gt=0, le=1000)] = 200
    """Browsing requests per second."""
    clients: Annotated[int, Field(gt=0, le=64)] = 64
    """Clients that stream text from the demo's model."""
    seconds: Annotated[int, Field(gt=0, le=86_400)] = 1800
    """Duration in seconds."""
    overload_seconds: Annotated[int, Field(gt=0, le=600)] = 10
    """Duration of the tenfold load in seconds."""

    def run(self) -> int:
        """Measure and report."""
        from benchmarks.backend.together import bench_load

        run = sample_run()
        with self.made() as (folder, database, _):
            shutil.copytree(SAMPLE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sqlite*"))
            register(run.name, folder, database)
            with serving(folder, database) as (url, process), task("Loading", "seconds") as callbacks:
                found = bench_load(
                    url=url,
                    process=process.pid,
                    sizes=self.sizes,
                    run=run.name,
                    rate=self.rate,
                    clients=self.clients,
                    seconds=self.seconds,
                    overload_seconds=self.overload_seconds,
                    callbacks=callbacks,
                )
        streams, more = found.streams, found.overload_streams
        memory = ", ".join(f"{mb:.0f}" for mb in found.memory_mb)
        recovered = "never" if found.recovered_seconds is None else f"{found.recovered_seconds:.1f} s"
        words = [
            _describe(found.browsing),
            f"{found.clients} clients meanwhile: {streams.describe}",
            f"Memory of the server in MB: {memory}; in the end {found.memory_after_mb:.0f}",
            f"Ten times that for {self.overload_seconds} s: {_describe(found.overload)}; {more.describe}",
            f"All well again after: {recovered} (wanted {RECOVERY_WANTED_SECONDS} s)",
        ]
        self.report(asdict(found), "\n".join(words))
        recovers = found.recovered_seconds is not None and found.recovered_seconds <= RECOVERY_WANTED_SECONDS
        return 0 if recovers and not found.wrong else 1


def _describe(load: Load) -> str:
    return (
        f"{load.requests_per_second:,.0f} requests/s for {load.seconds:.0f} s: p50 {load.p50_ms:.1f}, "
        f"p95 {load.p95_ms:.1f}, p99 {load.p99_ms:.1f}, slowest {load.slowest_ms:.1f} ms, {load.errors} errors, "
        f"{load.refused} refused; sent {load.sent_late_p99_ms:.1f} ms late (p99)"
    )


def register(run: str, data: Path, url: str) -> None:
    """Register a run of a data folder in a database."""
    from mxd.backend.database.engine import opened
    from mxd.trainer.storage.run import Run
    from mxd.trainer.storage.run_records import register_run

    with opened(url) as database:
        register_run(Run.load(run, data), database)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Yield the folder to keep, or a temporary one."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def tokenizer_folder() -> Path:
    """Return the tokenizer folder of the tests' demo, because synthetic text needs real words.

    Raises:
        UserError: the demo is missing.
    """
    found = next(TEST_DEMO.glob("runs/*/tokenizer"), None)
    if found is None:
        raise UserError(NO_SAMPLE)
    return found


@contextmanager
def serving(data: Path, database: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a server in its own process, so that the client does not slow it down. Yields address and process."""
    flags = ["--data", str(data), "--database", database, "--host", "127.0.0.1", "--port", "0", "--device", "cpu"]
    words = [sys.executable, "-m", "mxd.backend.cli.main", "serve", *flags]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline().split()
            assert said, "the server has not started; its reason is above"
            yield next(word for word in said if word.startswith("http://")), process
        finally:
            process.terminate()
