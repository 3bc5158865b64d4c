"""Browsing speed: a client that sends a real server every kind of request that pages make."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import get_args
from urllib.parse import quote, urlsplit

import numpy as np

from benchmarks.backend.database import RUN, Sizes
from benchmarks.backend.load import Load, PathOf, hold
from mxd.backend.queries.examples import ExpertCursor
from mxd.backend.schemas.experts import ExpertSort

WARM_UP = 2
LISTS = {
    **{f"by {sort}": f"sort={sort}&order=desc" for sort in get_args(ExpertSort)},
    "filtered": "sort=entropy&order=desc&min_density=0.001&min_max_activation=4",
    "hardly any fit": "sort=entropy&order=desc&min_density=0.2",
    "searched": "sort=density&order=desc&search=the",
    "searched and filtered": "sort=max_activation&order=desc&search=little&max_density=0.001",
}
"""Tables of experts whose first and last page are requested."""

ANYWHERE: dict[ExpertSort, Callable[[np.random.Generator], float]] = {
    "density": lambda chance: float(chance.lognormal(-8, 2)),
    "max_activation": lambda chance: float(chance.gamma(4, 1.2)),
    "entropy": lambda chance: float(chance.uniform(0, 12)),
}
"""Stored values at which pages start; each request uses another one."""

COMMON = (
    "the of and to in is that for it was on are as with his they at be this from have or by one had not but what all "
    "were when we there can an your which their said if do will each about how up out them then she many some so these "
    "would other into has more her two like him see time could no make than first been its who now people my made over "
    "did down only way find use may water long little very after words called just where most know"
)
WORDS = COMMON.split()
"""Search queries in rotation, with realistic word frequencies."""


@dataclass(frozen=True)
class Quantiles:
    """Milliseconds until the whole response has arrived."""

    p50_ms: float
    p95_ms: float
    p99_ms: float


@dataclass(frozen=True)
class BrowseBench:
    """Result of ``python -m benchmarks browse``."""

    queries: dict[str, Quantiles]
    load: Load
    """All queries in rotation."""
    requests_per_second: float
    """Quantiles of ``load``."""
    bytes_per_example: float
    """Size of the whole database, with token sequences, statistics and indexes."""
    experts: int
    examples: int
    sequences: int


def bench_browse(url: str, sizes: Sizes, database_bytes: int, rounds: int, rate: int, seconds: int) -> BrowseBench:
    """Benchmark a server on a database of ``write_database``.

    Args:
        url: of the server.
        sizes: of the database.
        database_bytes: of the database, on disk.
        rounds: requests per query.
        rate: requests per second, afterwards.
        seconds: duration of that load.
    """
    with closing(Client(url)) as client:
        paths = paths_of(client.get, sizes)
        queries = {name: _quantiles(client, path, rounds) for name, path in paths.items()}
    turns = list(paths.values())
    load = asyncio.run(hold(url, lambda place: turns[place % len(turns)](place), rate, seconds))
    return BrowseBench(
        queries=queries,
        load=load,
        requests_per_second=load.requests_per_second,
        bytes_per_example=database_bytes / (sizes.experts * sizes.examples),
        experts=sizes.experts,
        examples=sizes.experts * sizes.examples,
        sequences=sizes.stored_sequences,
    )


class Client:
    """A persistent connection, like a browser's."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc)

    def get(self, path: str) -> bytes:
        """Return the body of a successful response."""
        self._connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
        answer = self._connection.getresponse()
        body = answer.read()
        assert answer.status == HTTPStatus.OK, (path, body)
        return gzip.decompress(body) if answer.headers["Content-Encoding"] == "gzip" else body

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def paths_of(get: Callable[[str], bytes], sizes: Sizes) -> dict[str, PathOf]:
    """Return every query by name. ``get`` fetches the cursors of last pages."""
    run = f"/api/runs/{RUN}"
    found: dict[str, PathOf] = {}
    for name, query in LISTS.items():
        address = f"{run}/experts?{query}&limit=60"
        found[name] = partial(_same, address)
        found[f"{name}, last page"] = partial(_same, _last_page(get, address))

    def some_expert(place: int) -> str:
        return f"{run}/experts/{place * 7919 % sizes.experts}"

    def some_page(sort: ExpertSort, place: int) -> str:
        chance = np.random.default_rng(place)
        cursor = ExpertCursor(sort=sort, order="desc", value=ANYWHERE[sort](chance), expert=place).encode()
        return f"{run}/experts?sort={sort}&order=desc&limit=60&cursor={cursor}"

    def some_search(place: int) -> str:
        return f"/api/search?runs={RUN}&text={quote(WORDS[place % len(WORDS)])}"

    def some_list(place: int) -> str:
        return f"{run}/experts?sort=density&order=desc&limit=60&search={quote(WORDS[place % len(WORDS)])}"

    return {
        **found,
        **{f"by {sort}, any page": partial(some_page, sort) for sort in ANYWHERE},
        "searched, any word": some_list,
        "search, any word": some_search,
        "expert": some_expert,
        "examples": lambda place: f"{some_expert(place)}/examples?bin=0&limit=20",
        "random expert": partial(_same, f"{run}/experts?among=active&sort=random&limit=1"),
        "search, rare word": partial(_same, f"/api/search?runs={RUN}&text=lantern"),
        "search, common word": partial(_same, f"/api/search?runs={RUN}&text=the"),
        "search, two words": partial(_same, f"/api/search?runs={RUN}&text=the%20little"),
        "scatter": partial(_same, f"/api/figures/density-activation?run={RUN}"),
    }


def _same(address: str, _place: int) -> str:
    return address


def _last_page(get: Callable[[str], bytes], address: str) -> str:
    """Return the last page of a list; the first page of the reversed list gives its cursor."""
    turned = address.replace("order=desc", "order=asc")
    cursor = json.loads(get(turned))["next_cursor"]
    if cursor is None:
        return address
    return f"{address}&cursor={ExpertCursor.decode(cursor).model_copy(update={'order': 'desc'}).encode()}"


def _quantiles(client: Client, path: PathOf, rounds: int) -> Quantiles:
    seconds = []
    for place in range(rounds + WARM_UP):
        started = time.perf_counter()
        client.get(path(place))
        if place >= WARM_UP:
            seconds.append(time.perf_counter() - started)
    return Quantiles(*(float(value) * 1000 for value in np.percentile(seconds, [50, 95, 99])))
