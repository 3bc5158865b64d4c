"""Requests that come at a fixed rate, whether or not those before have been answered, as those of many people do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

import numpy as np

PATIENCE_SECONDS = 30.0
MOST_CONNECTIONS = 256

PathOf = Callable[[int], str]
"""The address of the n-th request."""


@dataclass(frozen=True)
class Load:
    """How a server has stood a rate of requests."""

    requests_per_second: float
    """That were answered, over the whole time."""
    seconds: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    """From the moment a request was due, so that waiting for a slow server counts."""
    slowest_ms: float
    errors: int
    refused: int
    """With status 429 or 503 and when to come back: not counted among the errors, nor among those answered."""
    sent_late_p99_ms: float
    """How long after it was due a request was sent: what the client itself adds."""


class _Refused(Exception):
    """The server asks to come back later, and says when."""


@dataclass(frozen=True)
class _Answer:
    late: float
    took: float


class _Connections:
    """Connections that stay open; another is made whenever all are waiting for answers."""

    def __init__(self, url: str, most: int) -> None:
        address = urlsplit(url)
        assert address.hostname and address.port
        self._host, self._port = address.hostname, address.port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._room = asyncio.Semaphore(most)

    async def get(self, path: str) -> None:
        """Ask, and read the whole answer.

        Raises:
            OSError: there is no connection, or it breaks.
            ValueError: the answer is not OK.
            _Refused: it is a refusal.
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
            # The server had just closed it, as it does with those that nobody uses; browsers try again, too.
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
        """Status of the answer, and whether it says when to come back."""
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\nAccept-Encoding: gzip\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        return int(head.split(b" ", 2)[1]), b"\r\nretry-after:" in head

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()


async def hold(url: str, path: PathOf, rate: float, seconds: float, most_connections: int = MOST_CONNECTIONS) -> Load:
    """Ask for ``path`` of 0, 1, 2, … at a fixed rate.

    Args:
        url: of the server.
        path: what is asked for.
        rate: requests a second.
        seconds: how long these come.
        most_connections: at a time; what is due beyond them waits for one, which counts.
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
        async with asyncio.timeout(PATIENCE_SECONDS):
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
