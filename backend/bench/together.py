"""Browsing and live use at once, then ten times that: what is refused or goes wrong, and when all is well again."""

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

from backend.bench.browse import Client, paths_of
from backend.bench.load import Load, PathOf, hold
from backend.bench.soak import Clients, Streamed, expect, memory_until
from backend.bench.store import Sizes
from trainer.progress import Progress

MORE = 10
OVERLOAD_CONNECTIONS = 2_000
AFTER_SECONDS = 15
"""For which it is watched whether all is well again."""


@dataclass(frozen=True)
class Second:
    """A second's worth of requests after the overload."""

    asked_seconds: float
    """From the end of the overload until the first of these was sent."""
    answered_seconds: float
    """The same, until all of them had been answered."""
    p99_ms: float
    refused: int
    errors: int


@dataclass(frozen=True)
class LoadBench:
    """What ``mxd bench load`` reports."""

    clients: int
    browsing: Load
    streams: Streamed
    memory_mb: tuple[float, ...]
    """Resident memory of the server at ten moments of this, evenly apart."""
    overload: Load
    """Ten times the rate."""
    overload_streams: Streamed
    """Ten times the clients."""
    after: tuple[Second, ...]
    """At the rate of before, with as many clients as before."""
    after_streams: Streamed
    recovered_seconds: float | None
    """After the overload, the moment since which no request that is sent is refused or goes wrong."""
    memory_after_mb: float

    @property
    def wrong(self) -> int:
        """All that was neither answered nor refused."""
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
    progress: Progress,
) -> LoadBench:
    """Load a server that does nothing else.

    Args:
        url: of a server on a store of ``write_store``.
        process: id of its process.
        sizes: of the store.
        run: name of a run with weights that it has, too.
        rate: requests a second for what pages ask for.
        clients: that stream meanwhile.
        seconds: for how long.
        overload_seconds: for how long ten times that comes afterwards.
    """
    expected = expect(url, run)
    # In a process of its own: the threads of the clients would keep it from asking in time.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
        addresses = other.submit(_addresses, url, sizes).result()
        browsed = other.submit(_browse, url, addresses, rate, seconds, overload_seconds)
        streaming = Clients(expected, clients, seconds)
        memory = tuple(memory_until(process, seconds, streaming, progress))
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
    """Seconds until all was well, and stayed so; None where it was not in the end."""
    well = None
    for second in reversed(after):
        if second.refused + second.errors:
            break
        well = second.asked_seconds
    return well


def _addresses(url: str, sizes: Sizes) -> list[list[str]]:
    """Of every query some, which the other process can be given."""
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
