"""Browsing and streaming at the same time, then ten times that load, then normal load again."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import psutil

from benchmarks.backend.browse import Client, paths_of
from benchmarks.backend.database import Sizes
from benchmarks.backend.load import Load, PathOf, hold
from benchmarks.backend.soak import Clients, Streamed, expect, memory_until
from mxd.trainer.utils.callbacks import Callbacks

MORE = 10
OVERLOAD_CONNECTIONS = 2_000
AFTER_SECONDS = 15
"""Seconds for which the recovery is observed."""


@dataclass(frozen=True)
class Second:
    """One second of requests after the overload."""

    asked_seconds: float
    """Seconds from the end of the overload until the first of these was sent."""
    answered_seconds: float
    """Seconds from the end of the overload until all of them were answered."""
    p99_ms: float
    refused: int
    errors: int


@dataclass(frozen=True)
class LoadBench:
    """Result of ``python -m benchmarks load``."""

    clients: int
    browsing: Load
    streams: Streamed
    memory_mb: tuple[float, ...]
    """Resident memory of the server at ten evenly spaced moments."""
    overload: Load
    """Browsing at ten times the rate."""
    overload_streams: Streamed
    """Streaming with ten times the clients."""
    after: tuple[Second, ...]
    """Normal rate and clients after the overload."""
    after_streams: Streamed
    recovered_seconds: float | None
    """Seconds after the overload until no further request was rejected or failed."""
    memory_after_mb: float

    @property
    def wrong(self) -> int:
        """Number of requests that were neither answered nor rejected with Retry-After."""
        streamed = (self.streams, self.overload_streams, self.after_streams)
        browsed: tuple[Load | Second, ...] = (self.browsing, self.overload, *self.after)
        return sum(it.wrong + it.stuck + it.failed for it in streamed) + sum(it.errors for it in browsed)


@dataclass(frozen=True)
class _Browsed:
    browsing: Load
    overload: Load
    after: tuple[Second, ...]


def bench_load(
    *,
    url: str,
    process: int,
    sizes: Sizes,
    run: str,
    rate: int,
    clients: int,
    seconds: int,
    overload_seconds: int,
    callbacks: Callbacks,
) -> LoadBench:
    """Put load on an otherwise idle server.

    Args:
        url: of a server on a database of ``write_database``.
        process: its process id.
        sizes: of the database.
        run: name of one of its runs with weights.
        rate: browsing requests per second.
        clients: streaming clients.
        seconds: duration.
        overload_seconds: duration of the tenfold load.
    """
    expected = expect(url, run)
    # In a separate process: the client threads would delay its requests.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
        addresses = other.submit(_addresses, url, sizes).result()
        browsed = other.submit(_browse, url, addresses, rate, seconds, overload_seconds)
        streaming = Clients(expected, clients, seconds)
        memory = tuple(memory_until(process, seconds, streaming, callbacks))
        overloading = Clients(expected, MORE * clients, overload_seconds)
        time.sleep(overload_seconds)
        after = Clients(expected, clients, AFTER_SECONDS)
        streams, overload_streams, after_streams = streaming.result(), overloading.result(), after.result()
        found = browsed.result()
    return LoadBench(
        clients=clients,
        browsing=found.browsing,
        streams=streams,
        memory_mb=memory,
        overload=found.overload,
        overload_streams=overload_streams,
        after=found.after,
        after_streams=after_streams,
        recovered_seconds=recovered(found.after),
        memory_after_mb=psutil.Process(process).memory_info().rss / 2**20,
    )


def recovered(after: Sequence[Second]) -> float | None:
    """Return seconds until everything was and stayed normal; None if it did not recover."""
    well = None
    for second in reversed(after):
        if second.refused + second.errors:
            break
        well = second.asked_seconds
    return well


def _addresses(url: str, sizes: Sizes) -> list[list[str]]:
    """Return some requests of every query, for the other process."""
    with closing(Client(url)) as client:
        return [[path(place) for place in range(64)] for path in paths_of(client.get, sizes).values()]


def _browse(url: str, addresses: list[list[str]], rate: int, seconds: int, overload_seconds: int) -> _Browsed:
    return asyncio.run(_browse_on(url, partial(_turn, addresses), rate, seconds, overload_seconds))


def _turn(addresses: list[list[str]], place: int) -> str:
    round_, query = divmod(place, len(addresses))
    return addresses[query][round_ % len(addresses[query])]


async def _browse_on(url: str, path: PathOf, rate: int, seconds: int, overload_seconds: int) -> _Browsed:
    browsing = await hold(url, path, rate, seconds)
    overload = asyncio.create_task(hold(url, path, MORE * rate, overload_seconds, OVERLOAD_CONNECTIONS))
    await asyncio.sleep(overload_seconds)
    ended, after = time.perf_counter(), []
    while (asked := time.perf_counter() - ended) < AFTER_SECONDS:
        load = await hold(url, path, rate, 1.0)
        answered = time.perf_counter() - ended
        after.append(Second(asked, answered, p99_ms=load.p99_ms, refused=load.refused, errors=load.errors))
    return _Browsed(browsing, await overload, tuple(after))
