"""How fast browsing is: a client that asks a real server for everything that pages ask for."""

from __future__ import annotations

import base64
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
from typing import get_args
from urllib.parse import urlsplit

import numpy as np

from backend.bench.store import RUN, Sizes
from backend.schemas import ExpertSort

WARM_UP = 2
CONNECTIONS = 16
LISTS = {
    **{f"by {sort}": f"sort={sort}&order=desc" for sort in get_args(ExpertSort)},
    "filtered": "sort=entropy&order=desc&min_usage=0.001&min_largest=4",
    "hardly any fit": "sort=entropy&order=desc&min_usage=0.2",
    "searched": "sort=usage&order=desc&search=the",
    "searched and filtered": "sort=largest&order=desc&search=little&max_usage=0.001",
}
"""Tables of experts: the first page of each is asked for, and the last."""

PathOf = Callable[[int], str]
"""The address of the n-th request of a query."""


@dataclass(frozen=True)
class Quantiles:
    """Milliseconds until the whole answer has come."""

    p50_ms: float
    p95_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Load:
    """Requests that come at a fixed rate, whether or not those before have been answered."""

    requests_per_second: float
    """That were answered, over the whole time."""
    seconds: float
    p50_ms: float
    p99_ms: float
    """From the moment a request was due, so that waiting for a slow server counts."""
    errors: int


@dataclass(frozen=True)
class BrowseBench:
    """What ``mxd bench browse`` reports."""

    queries: dict[str, Quantiles]
    load: Load
    """All queries in turn."""
    requests_per_second: float
    """Of ``load``."""
    bytes_per_context: float
    """Of the whole store: token sequences, statistics and indexes included."""
    experts: int
    contexts: int
    sequences: int


def bench_browse(url: str, sizes: Sizes, store_bytes: int, rounds: int, rate: int, seconds: int) -> BrowseBench:
    """Ask a server on a store of ``write_store``.

    Args:
        url: of the server.
        sizes: of the store.
        store_bytes: of the store, on disk.
        rounds: requests of each query.
        rate: requests a second, afterwards.
        seconds: how long these come.
    """
    with closing(_Client(url)) as client:
        paths = paths_of(client.get, sizes)
        queries = {name: _quantiles(client, path, rounds) for name, path in paths.items()}
    load = _load(url, list(paths.values()), rate, seconds)
    return BrowseBench(
        queries=queries,
        load=load,
        requests_per_second=load.requests_per_second,
        bytes_per_context=store_bytes / (sizes.experts * sizes.contexts),
        experts=sizes.experts,
        contexts=sizes.experts * sizes.contexts,
        sequences=sizes.stored_sequences,
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
    """Every query, by name. ``get`` asks for the cursors of last pages."""
    run = f"/api/runs/{RUN}"
    found: dict[str, PathOf] = {}
    for name, query in LISTS.items():
        address = f"{run}/experts?{query}&limit=60"
        found[name] = partial(_same, address)
        found[f"{name}, last page"] = partial(_same, _last_page(get, address))

    def some_expert(place: int) -> str:
        return f"{run}/experts/{place * 7919 % sizes.experts}"

    return {
        **found,
        "expert": some_expert,
        "contexts": lambda place: f"{some_expert(place)}/contexts?interval=0&limit=20",
        "random expert": partial(_same, f"{run}/experts/random"),
        "search, rare word": partial(_same, f"{run}/search?text=lantern"),
        "search, common word": partial(_same, f"{run}/search?text=the"),
        "search, two words": partial(_same, f"{run}/search?text=the%20little"),
        "scatter": partial(_same, f"/api/figures/usage-strength?run={RUN}"),
    }


def _same(address: str, _place: int) -> str:
    return address


def _last_page(get: Callable[[str], bytes], address: str) -> str:
    """The page that ends the list: the first of the list turned round tells where it begins."""
    turned = address.replace("order=desc", "order=asc")
    cursor = json.loads(get(turned))["next_cursor"]
    if cursor is None:
        return address
    held = json.loads(base64.urlsafe_b64decode(cursor + "=="))
    word = base64.urlsafe_b64encode(json.dumps({**held, "order": "desc"}).encode()).decode().rstrip("=")
    return f"{address}&cursor={word}"


def _quantiles(client: _Client, path: PathOf, rounds: int) -> Quantiles:
    seconds = []
    for place in range(-WARM_UP, rounds):
        started = time.perf_counter()
        client.get(path(place))
        if place >= 0:
            seconds.append(time.perf_counter() - started)
    return Quantiles(*(float(value) * 1000 for value in np.percentile(seconds, [50, 95, 99])))


def _load(url: str, paths: Sequence[PathOf], rate: int, seconds: int) -> Load:
    begin = time.perf_counter() + 0.5
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        asked = [
            pool.submit(_ask_in_time, url, paths, begin, rate, range(first, rate * seconds, CONNECTIONS))
            for first in range(CONNECTIONS)
        ]
        answers = [answer for one in asked for answer in one.result()]
    ended = time.perf_counter()
    good = [took for took in answers if took is not None]
    return Load(
        requests_per_second=len(good) / (ended - begin),
        seconds=ended - begin,
        p50_ms=float(np.percentile(good, 50)) * 1000,
        p99_ms=float(np.percentile(good, 99)) * 1000,
        errors=len(answers) - len(good),
    )


def _ask_in_time(
    url: str, paths: Sequence[PathOf], begin: float, rate: int, places: Sequence[int]
) -> list[float | None]:
    """Seconds from when each request was due until it was answered; None where that failed."""
    took: list[float | None] = []
    with closing(_Client(url)) as client:
        for place in places:
            due = begin + place / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            try:
                client.get(paths[place % len(paths)](place))
            except (AssertionError, OSError, http.client.HTTPException):
                took.append(None)
            else:
                took.append(time.perf_counter() - due)
    return took
