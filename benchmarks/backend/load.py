"""Open-loop load: requests at a fixed rate, whether or not earlier ones have been answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

import numpy as np

TIMEOUT_SECONDS = 30.0
MOST_CONNECTIONS = 256

PathOf = Callable[[int], str]
"""Path of the n-th request."""


@dataclass(frozen=True)
class Load:
    """Response of a server to a rate of requests."""

    requests_per_second: float
    """Successful responses per second over the whole time."""
    seconds: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    """Latency from the moment a request was due, so that queueing in the client counts."""
    slowest_ms: float
    errors: int
    refused: int
    """Responses 429 or 503 with Retry-After; counted neither as errors nor as answered."""
    sent_late_p99_ms: float
    """Delay between due time and sending: the client's own contribution."""


class _Refused(Exception):
    """The server responded with Retry-After."""


@dataclass(frozen=True)
class _Answer:
    late: float
    took: float


class _Connections:
    """Persistent connections; another one is opened when all are busy."""

    def __init__(self, url: str, most: int) -> None:
        address = urlsplit(url)
        assert address.hostname and address.port
        self._host, self._port = address.hostname, address.port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._room = asyncio.Semaphore(most)

    async def get(self, path: str) -> None:
        """Send a request and read the whole response.

        Raises:
            OSError: the connection failed.
            ValueError: the status is not OK.
            _Refused: the server asks to retry later.
        """
        async with self._room:
            status, says_when = await self._again(path) if self._idle else await self._anew(path)
        if says_when and status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
            raise _Refused
        if status != HTTPStatus.OK:
            raise ValueError(f"{path}: {status}")

    async def _again(self, path: str) -> tuple[int, bool]:
        streams = self._idle.pop()
        try:
            answered = await self._exchange(*streams, path)
        except (ConnectionError, asyncio.IncompleteReadError):
            # The server has closed an idle connection; browsers retry, too.
            return await self._anew(path)
        self._idle.append(streams)
        return answered

    async def _anew(self, path: str) -> tuple[int, bool]:
        streams = await asyncio.open_connection(self._host, self._port)
        answered = await self._exchange(*streams, path)
        self._idle.append(streams)
        return answered

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str
    ) -> tuple[int, bool]:
        """Return the status, and whether the response has Retry-After."""
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\nAccept-Encoding: gzip\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        return int(head.split(b" ", 2)[1]), b"\r\nretry-after:" in head

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()


async def hold(url: str, path: PathOf, rate: float, seconds: float, most_connections: int = MOST_CONNECTIONS) -> Load:
    """Request ``path`` of 0, 1, 2, … at a fixed rate.

    Args:
        url: of the server.
        path: maps the request number to a path.
        rate: requests per second.
        seconds: duration.
        most_connections: limit; requests beyond it wait, which counts as latency.
    """
    connections = _Connections(url, most_connections)
    begin = time.perf_counter() + 0.1
    asked: list[asyncio.Task[_Answer | str]] = []
    for place in range(round(rate * seconds)):
        due = begin + place / rate
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        asked.append(asyncio.create_task(_ask(connections, path(place), due)))
    answers = await asyncio.gather(*asked)
    ended = time.perf_counter()
    connections.close()
    return _summary(answers, ended - begin)


async def _ask(connections: _Connections, path: str, due: float) -> _Answer | str:
    late = time.perf_counter() - due
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await connections.get(path)
    except _Refused:
        return "refused"
    except (OSError, ValueError, asyncio.IncompleteReadError, TimeoutError):
        return "failed"
    return _Answer(late, time.perf_counter() - due)


def _summary(answers: list[_Answer | str], seconds: float) -> Load:
    good = [answer for answer in answers if isinstance(answer, _Answer)]
    took = np.array([answer.took for answer in good] or [np.nan]) * 1000
    return Load(
        requests_per_second=len(good) / seconds,
        seconds=seconds,
        p50_ms=float(np.percentile(took, 50)),
        p95_ms=float(np.percentile(took, 95)),
        p99_ms=float(np.percentile(took, 99)),
        slowest_ms=float(took.max()),
        errors=answers.count("failed"),
        refused=answers.count("refused"),
        sent_late_p99_ms=float(np.percentile([answer.late for answer in good] or [np.nan], 99)) * 1000,
    )
