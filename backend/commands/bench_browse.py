"""``mxd bench browse`` and ``load``: a server on a made-up store, asked by many."""

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

from backend.commands.base import Command
from backend.commands.bench_live import NO_SAMPLE, Positive, sample_run
from backend.commands.console import progress
from trainer.config import SAMPLE
from trainer.errors import UserError

if TYPE_CHECKING:
    from backend.bench.load import Load
    from backend.bench.store import Sizes

RECOVERY_WANTED_SECONDS = 5


class _MadeUpStore(Command):
    """What both have: a made-up store of a size, in SQLite or in PostgreSQL."""

    experts: Positive = 86_015
    """In the store."""
    contexts: Positive = 40
    """Of each expert."""
    sequences: Annotated[int, Field(ge=0)] = 0
    """Token sequences that the contexts lie in; 0: as many as 10M tokens hold."""
    keep: Path | None = None
    """Keep the store in this folder, and take the one that is there."""
    store: str | None = None
    """URL of a database of its own that the store is made in, such as postgresql://USER@HOST/DATABASE. It stays there
    and is taken the next time; by default SQLite in the folder."""

    @property
    def sizes(self) -> Sizes:
        """How large it is."""
        from backend.bench.store import Sizes

        return Sizes(self.experts, self.contexts, self.sequences)

    @contextmanager
    def made(self) -> Iterator[tuple[Path, str, int]]:
        """Data folder, URL and bytes of the store."""
        from backend.bench.store import write_store
        from trainer.store import sqlite_url

        with _folder(self.keep) as folder:
            url = self.store or sqlite_url(folder)
            print(f"Writing {self.experts * self.contexts:,} contexts, or taking those there are", file=sys.stderr)
            yield folder, url, write_store(folder, url, tokenizer_folder(), self.sizes)


class BenchBrowse(_MadeUpStore):
    """Browsing: a server on a made-up store of this size, asked for everything that pages ask for."""

    rounds: Positive = 100
    """Requests of each query, one after the other."""
    rate: Positive = 200
    """Requests a second afterwards, all queries in turn."""
    seconds: Positive = 60
    """How long these come."""

    def run(self) -> int:
        """Measure."""
        from backend.bench.browse import bench_browse

        with self.made() as (folder, store, store_bytes), _server(folder, store) as (url, _):
            found = bench_browse(url, self.sizes, store_bytes, self.rounds, self.rate, self.seconds)
        lines = [f"{name:<34} {it.p50_ms:8.1f} {it.p95_ms:8.1f} {it.p99_ms:8.1f}" for name, it in found.queries.items()]
        words = [
            f"{'milliseconds':<34} {'p50':>8} {'p95':>8} {'p99':>8}",
            *lines,
            f"{_in_words(found.load)}; {found.bytes_per_context:,.0f} bytes per context, "
            f"{found.contexts / found.sequences:.0f} contexts a sequence",
        ]
        self.report(asdict(found), "\n".join(words))
        return 0


class BenchLoad(_MadeUpStore):
    """Browsing and streaming clients at once, a third of which leave midway; then ten times that; then as before.

    Exit code 1 where anything but refusals was wrong, or it took more than five seconds until all was well again.
    """

    rate: Annotated[int, Field(gt=0, le=1000)] = 200
    """Requests a second for what pages ask for."""
    clients: Annotated[int, Field(gt=0, le=64)] = 64
    """That stream texts of the shipped sample."""
    seconds: Annotated[int, Field(gt=0, le=86_400)] = 1800
    """For how long."""
    overload_seconds: Annotated[int, Field(gt=0, le=600)] = 10
    """For how long ten times as much comes."""

    def run(self) -> int:
        """Load it."""
        from backend.bench.together import bench_load

        run = sample_run()
        with self.made() as (folder, store, _):
            shutil.copytree(SAMPLE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sqlite*"))
            _register(run.name, folder, store)
            with _server(folder, store) as (url, process), progress("Loading", "seconds") as shown:
                found = bench_load(
                    url=url,
                    process=process.pid,
                    sizes=self.sizes,
                    run=run.name,
                    rate=self.rate,
                    clients=self.clients,
                    seconds=self.seconds,
                    overload_seconds=self.overload_seconds,
                    progress=shown,
                )
        streams, more = found.streams, found.overload_streams
        memory = ", ".join(f"{mb:.0f}" for mb in found.memory_mb)
        recovered = "never" if found.recovered_seconds is None else f"{found.recovered_seconds:.1f} s"
        words = [
            _in_words(found.browsing),
            f"{found.clients} clients meanwhile: {streams.in_words}",
            f"Memory of the server in MB: {memory}; in the end {found.memory_after_mb:.0f}",
            f"Ten times that for {self.overload_seconds} s: {_in_words(found.overload)}; {more.in_words}",
            f"All well again after: {recovered} (wanted {RECOVERY_WANTED_SECONDS} s)",
        ]
        self.report(asdict(found), "\n".join(words))
        recovers = found.recovered_seconds is not None and found.recovered_seconds <= RECOVERY_WANTED_SECONDS
        return 0 if recovers and not found.wrong else 1


def _in_words(load: Load) -> str:
    return (
        f"{load.requests_per_second:,.0f} requests/s for {load.seconds:.0f} s: p50 {load.p50_ms:.1f}, "
        f"p95 {load.p95_ms:.1f}, p99 {load.p99_ms:.1f}, slowest {load.slowest_ms:.1f} ms, {load.errors} errors, "
        f"{load.refused} refused; sent {load.sent_late_p99_ms:.1f} ms late (p99)"
    )


def _register(run: str, data: Path, url: str) -> None:
    from backend.database import opened
    from trainer.registration import register_run
    from trainer.run import Run

    with opened(url) as store:
        register_run(Run.load(run, data), store)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """The folder to keep, or one that goes with the measurement."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def tokenizer_folder() -> Path:
    """That of the sample: made-up text needs real words.

    Raises:
        UserError: the sample is not there.
    """
    found = next(SAMPLE.glob("runs/*/tokenizer"), None)
    if found is None:
        raise UserError(NO_SAMPLE)
    return found


@contextmanager
def _server(data: Path, store: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server in a process of its own, so that asking takes nothing from answering: its address and its process."""
    flags = ["--data", str(data), "--store", store, "--host", "127.0.0.1", "--port", "0", "--device", "cpu"]
    words = [sys.executable, "-m", "backend.cli", "serve", *flags]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline().split()
            assert said, "the server has not started; its reason is above"
            yield next(word for word in said if word.startswith("http://")), process
        finally:
            process.terminate()
