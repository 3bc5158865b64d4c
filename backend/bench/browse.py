"""How fast browsing is: a client that asks a real server for everything that pages ask for."""

from __future__ import annotations

import gzip
import http.client
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from urllib.parse import urlsplit

import numpy as np

from backend.bench.store import RUN, Sizes

WARM_UP = 2
DEPTH = 40
"""Pages down, for the page that is far from the first."""

PathOf = Callable[[int], str]
"""The address of the n-th request of a query."""


@dataclass(frozen=True)
class Quantiles:
    """Milliseconds until the whole answer has come."""

    p50_ms: float
    p95_ms: float
    p99_ms: float


@dataclass(frozen=True)
class BrowseBench:
    """What ``mxd bench browse`` reports."""

    queries: dict[str, Quantiles]
    requests_per_second: float
    """All queries in turn, from several clients at once."""
    bytes_per_context: float
    """Of the whole store."""
    experts: int
    contexts: int
    clients: int


def bench_browse(url: str, sizes: Sizes, store_bytes: int, rounds: int, clients: int) -> BrowseBench:
    """Ask a server on a store of ``write_store``.

    Args:
        url: of the server.
        sizes: of the store.
        store_bytes: of the store, on disk.
        rounds: requests of each query.
        clients: connections that ask at once, for ``requests_per_second``.
    """
    with closing(_Client(url)) as client:
        paths = paths_of(client.get, sizes)
        queries = {name: _quantiles(client, path, rounds) for name, path in paths.items()}
    every = [path(place) for place in range(rounds) for path in paths.values()]
    started = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(partial(_ask_all, url), [every[place::clients] for place in range(clients)]))
    return BrowseBench(
        queries=queries,
        requests_per_second=len(every) / (time.perf_counter() - started),
        bytes_per_context=store_bytes / (sizes.experts * sizes.contexts),
        experts=sizes.experts,
        contexts=sizes.experts * sizes.contexts,
        clients=clients,
    )


class _Client:
    """One connection that stays open, as a browser's do."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc)

    def get(self, path: str) -> bytes:
        self._connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
        answer = self._connection.getresponse()
        body = answer.read()
        assert answer.status == HTTPStatus.OK, (path, body)
        return gzip.decompress(body) if answer.headers["Content-Encoding"] == "gzip" else body

    def close(self) -> None:
        self._connection.close()


def paths_of(get: Callable[[str], bytes], sizes: Sizes) -> dict[str, PathOf]:
    """Every query, by name. ``get`` asks for the cursors that one of them needs."""
    run = f"/api/runs/{RUN}"
    cursor = ""
    for _ in range(DEPTH):
        page = json.loads(get(f"{run}/experts?sort=usage&limit=100{cursor}"))
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"

    def some_expert(place: int) -> str:
        return f"{run}/experts/{place * 7919 % sizes.experts}"

    return {
        "experts": lambda _: f"{run}/experts?sort=largest&limit=60",
        "experts, filtered": lambda _: f"{run}/experts?sort=entropy&min_usage=0.001&min_largest=4&limit=60",
        "experts, far down": lambda _: f"{run}/experts?sort=usage&limit=100{cursor}",
        "experts, searched": lambda _: f"{run}/experts?sort=usage&search=the&limit=60",
        "expert": some_expert,
        "contexts": lambda place: f"{some_expert(place)}/contexts?interval=0&limit=20",
        "search, rare word": lambda _: f"{run}/search?text=lantern",
        "search, common word": lambda _: f"{run}/search?text=the",
        "scatter": lambda _: f"/api/figures/usage-strength?run={RUN}",
    }


def _quantiles(client: _Client, path: PathOf, rounds: int) -> Quantiles:
    seconds = []
    for place in range(-WARM_UP, rounds):
        started = time.perf_counter()
        client.get(path(place))
        if place >= 0:
            seconds.append(time.perf_counter() - started)
    return Quantiles(*(float(value) * 1000 for value in np.percentile(seconds, [50, 95, 99])))


def _ask_all(url: str, paths: Sequence[str]) -> None:
    with closing(_Client(url)) as client:
        for path in paths:
            client.get(path)
