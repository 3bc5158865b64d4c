"""A server under more clients than it has room for: browsing with wrk, then a crowd that steers, and its memory."""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import psutil

from benchmarks.backend.browse import Client, paths_of
from benchmarks.backend.database import Sizes

PATHS_PER_QUERY = 20
QUIET_SECONDS = 5.0
"""Time without requests after which the server's memory is measured."""
TIMEOUT_SECONDS = 900.0
SCRIPT = """
local paths = {%s}
local place = 0
request = function()
  place = place %% #paths + 1
  return wrk.format("GET", paths[place], {["Accept-Encoding"] = "gzip"})
end
"""
UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


@dataclass(frozen=True)
class Browsing:
    """Result of wrk."""

    connections: int
    requests_per_second: float
    p50_ms: float
    p99_ms: float
    errors: int
    """Responses other than 2xx and 3xx, and failed connections."""
    cpu_ms: float
    """Processor time of the server per request, which other programs on the machine hardly change."""


@dataclass(frozen=True)
class Steering:
    """Clients that all steer at once; those turned away return when told to."""

    clients: int
    served_at_once: int
    refused: int
    failed: int
    first_token_seconds: float
    """Median over the clients that were served at once."""
    told_seconds: float
    """Median of the first Retry-After of the others."""
    waited_seconds: float
    """Median of their time from the first attempt to the first token, returning when told to."""
    honesty: tuple[float, float, float]
    """5th, 50th and 95th percentile of waited divided by told."""
    returns: float
    """Mean number of attempts of those that were refused."""


@dataclass(frozen=True)
class CrowdBench:
    """Result of ``python -m benchmarks crowd``."""

    browsing: tuple[Browsing, ...]
    steering: Steering
    memory_started_mb: float
    memory_browsed_mb: float
    memory_loaded_mb: float
    """After browsing and one steering request: the language model is in memory and idle."""
    memory_after_mb: float
    """After all clients have left."""


def bench_crowd(
    url: str, process: int, sizes: Sizes, run: str, connections: Sequence[int], seconds: int, clients: int, tokens: int
) -> CrowdBench:
    """Benchmark a server on a synthetic database that also has a run to steer.

    Args:
        url: of the server.
        process: its id.
        sizes: of the database.
        run: name of the run to steer.
        connections: of wrk, one measurement each.
        seconds: duration of each.
        clients: that steer at once.
        tokens: that each asks for.
    """
    watched = psutil.Process(process)
    started = _megabytes(watched)
    with closing(Client(url)) as client:
        paths = [path(place) for path in paths_of(client.get, sizes).values() for place in range(PATHS_PER_QUERY)]
        for path in paths:
            client.get(path)
    browsing = tuple(_wrk(url, watched, paths, count, seconds) for count in connections)
    browsed = _megabytes(watched)
    asyncio.run(_steer(url, run, 1, tokens))
    time.sleep(QUIET_SECONDS)
    loaded = _megabytes(watched)
    steering = asyncio.run(_steer(url, run, clients, tokens))
    time.sleep(QUIET_SECONDS)
    return CrowdBench(browsing, steering, started, browsed, loaded, _megabytes(watched))


def _megabytes(process: psutil.Process) -> float:
    return float(process.memory_info().rss / 2**20)


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _wrk(url: str, process: psutil.Process, paths: Sequence[str], connections: int, seconds: int) -> Browsing:
    """Run Debian's wrk with the paths in rotation.

    Raises:
        FileNotFoundError: wrk is not installed.
    """
    order = np.random.default_rng(0).permutation(len(paths))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "paths.lua"
        script.write_text(SCRIPT % ", ".join(json.dumps(paths[place]) for place in order))
        words = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script), url]
        before = _cpu_seconds(process)
        said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        cpu_seconds = _cpu_seconds(process) - before
    bad = [int(number) for number in re.findall(r"Non-2xx or 3xx responses: (\d+)", said)]
    bad += [int(number) for line in re.findall(r"Socket errors: (.*)", said) for number in re.findall(r"\d+", line)]
    return Browsing(
        connections=connections,
        requests_per_second=float(re.findall(r"Requests/sec:\s+([\d.]+)", said)[0]),
        p50_ms=_percentile(said, 50),
        p99_ms=_percentile(said, 99),
        errors=sum(bad),
        cpu_ms=1000 * cpu_seconds / int(re.findall(r"(\d+) requests in", said)[0]),
    )


def _percentile(said: str, percent: int) -> float:
    ((number, unit),) = re.findall(rf"^\s+{percent}%\s+([\d.]+)(us|ms|s)$", said, re.MULTILINE)
    return float(number) * UNITS[unit]


@dataclass(frozen=True)
class _Client:
    """Times of one client, in seconds."""

    waited: float
    told: float | None
    attempts: int


async def _steer(url: str, run: str, clients: int, tokens: int) -> Steering:
    jobs = (_client(url, f"/api/runs/{run}/steering", number, tokens) for number in range(clients))
    found = await asyncio.gather(*jobs, return_exceptions=True)
    good = [it for it in found if isinstance(it, _Client)]
    refused = [it for it in good if it.told is not None]
    honesty = np.percentile([it.waited / it.told for it in refused if it.told] or [np.nan], [5, 50, 95])
    served = [it.waited for it in good if it.told is None]
    return Steering(
        clients=clients,
        served_at_once=len(served),
        refused=len(refused),
        failed=len(found) - len(good),
        first_token_seconds=statistics.median(served or [0.0]),
        told_seconds=statistics.median([it.told for it in refused if it.told] or [0.0]),
        waited_seconds=statistics.median([it.waited for it in refused] or [0.0]),
        honesty=(float(honesty[0]), float(honesty[1]), float(honesty[2])),
        returns=statistics.fmean([it.attempts for it in refused] or [0.0]),
    )


async def _client(url: str, path: str, number: int, tokens: int) -> _Client:
    """Steer, returning when told to, and read the stream to its end.

    Raises:
        ValueError: the response is neither a stream nor a refusal with Retry-After.
    """
    body = {
        "prompt": "One day, the little girl went to the",
        "edits": [{"expert": 7 * number % 2048, "mode": "add", "strength": 2.0}],
        "sampling": {"max_tokens": tokens, "seed": number, "temperature": 0.9},
    }
    began, told, attempts = time.perf_counter(), None, 0
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            attempts += 1
            first_token, retry_after = await _attempt(url, path, body)
            if first_token is not None:
                return _Client(first_token - began, told, attempts)
            told = told or retry_after
            await asyncio.sleep(retry_after)


async def _attempt(url: str, path: str, body: dict[str, Any]) -> tuple[float | None, float]:
    """Return the moment of the first token, or None and the seconds of Retry-After."""
    address = urlsplit(url)
    content = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        status = int(lines[0].split()[1])
        if status != HTTPStatus.OK:
            return None, next(float(line.split(":")[1]) for line in lines if line.startswith("retry-after:"))
        first_token = None
        while line := await reader.readline():
            if first_token is None and line.startswith(b"event: token"):
                first_token = time.perf_counter()
        if first_token is None:
            raise ValueError("the stream had no token")
        return first_token, 0.0
    finally:
        writer.close()
