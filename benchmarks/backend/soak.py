"""Soak test: many clients stream from one server, some disconnect midway; check for wrong, stuck or growing results."""

from __future__ import annotations

import http.client
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from benchmarks.backend.events import TIMEOUT_SECONDS, RefusedError, events_of
from mxd.trainer.utils.callbacks import Callbacks

LEAVING = 3
"""One client in this many disconnects midway."""
REFUSED_SECONDS = 0.5
"""Seconds after which a rejected client retries, sooner than Retry-After says."""
PROMPTS = (
    "One day, the little girl went to the",
    "It was a long day, and",
    "User: I need a table for two.",
    "def total(",
)

Token = tuple[str, int, int, int]
"""Variant, sample, position, token id."""


@dataclass(frozen=True)
class SoakBench:
    """Result of ``python -m benchmarks soak``."""

    seconds: float
    clients: int
    finished: int
    """Generations read to the end."""
    left: int
    """Generations whose client disconnected midway."""
    refused: int
    """Requests rejected with Retry-After."""
    wrong: int
    """Generations whose tokens differ from the same request alone."""
    stuck: int
    failed: int
    """Generations with an error, or whose connection ended early."""
    tokens: int
    after_ms: float
    """Seconds to the first token of a request sent right after all others disconnected."""
    alone_ms: float
    """Seconds to the first token on the idle server; median of the reference requests."""
    memory_mb: tuple[float, ...]
    """Resident memory of the server at ten evenly spaced moments; empty if the system does not report it."""


@dataclass(frozen=True)
class Streamed:
    """Observations of the streaming clients."""

    finished: int
    """Generations read to the end."""
    left: int
    """Generations whose client disconnected midway."""
    refused: int
    """Requests rejected with Retry-After."""
    wrong: int
    """Generations whose tokens differ from the same request alone."""
    stuck: int
    failed: int
    """Other statuses, errors, and connections that ended early."""
    tokens: int

    @property
    def describe(self) -> str:
        """Format as one line."""
        return (
            f"{self.finished} generations read to their end and {self.left} left midway, {self.refused} refused: "
            f"{self.wrong} wrong, {self.stuck} stuck, {self.failed} failed"
        )


@dataclass(frozen=True)
class Expected:
    """Requests of the clients, and the result of each alone."""

    url: str
    path: str
    bodies: list[dict[str, Any]]
    alone: tuple[list[Token], ...]
    alone_ms: float
    """Seconds to the first token; median."""


def expect(url: str, run: str) -> Expected:
    """Send every kind of request once, sequentially; the first one loads the language model."""
    path = f"/api/runs/{run}/steering"
    bodies = [_body(number) for number in range(12)]
    _read(url, path, bodies[0])
    alone, waits = zip(*(_timed(url, path, body) for body in bodies), strict=True)
    return Expected(url, path, bodies, alone, 1000 * statistics.median(waits))


class Clients:
    """Clients that stream one generation after the other until the time is over."""

    def __init__(self, expected: Expected, count: int, seconds: float) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._expected = expected
        self.deadline = time.monotonic() + seconds
        self._threads = [threading.Thread(target=self._stream, args=(number,), daemon=True) for number in range(count)]
        for thread in self._threads:
            thread.start()

    @property
    def note(self) -> str:
        """Format the progress."""
        counts = self._counts
        return (
            f"{counts['finished']} finished, {counts['left']} left, {counts['wrong']} wrong, {counts['failed']} failed"
        )

    def result(self) -> Streamed:
        """Return the observations after all clients have disconnected."""
        until = time.monotonic() + TIMEOUT_SECONDS + 30
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        stuck = sum(thread.is_alive() for thread in self._threads)
        names = ("finished", "left", "refused", "wrong", "failed", "tokens")
        return Streamed(stuck=self._counts["stuck"] + stuck, **{name: self._counts[name] for name in names})

    def _stream(self, number: int) -> None:
        """Request one generation after the other; disconnect in the middle of the last."""
        chance, expected = random.Random(number), self._expected
        while time.monotonic() < self.deadline:
            which = chance.randrange(len(expected.bodies))
            wanted = expected.alone[which]
            leaves_after = chance.randrange(1, len(wanted)) if chance.randrange(LEAVING) == 0 else None
            try:
                found = _read(expected.url, expected.path, expected.bodies[which], leaves_after, self.deadline)
            except RefusedError:
                self._add(refused=1)
                time.sleep(REFUSED_SECONDS)
            except TimeoutError:
                self._add(stuck=1)
            except (OSError, http.client.HTTPException, ValueError):
                self._add(failed=1)
            else:
                whole = len(found) == len(wanted)
                wrong = not set(found) <= set(wanted)
                self._add(finished=int(whole), left=int(not whole), wrong=int(wrong), tokens=len(found))

    def _add(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)


def bench_soak(url: str, process: int, run: str, clients: int, seconds: float, callbacks: Callbacks) -> SoakBench:
    """Let clients stream for some time.

    Args:
        url: of a fresh server.
        process: its process id.
        run: name of one of its runs.
    """
    expected = expect(url, run)
    streaming = Clients(expected, clients, seconds)
    memory = tuple(memory_until(process, seconds, streaming, callbacks))
    seen = streaming.result()
    _, after = _timed(url, expected.path, expected.bodies[0])
    return SoakBench(
        seconds=seconds,
        clients=clients,
        after_ms=1000 * after,
        alone_ms=expected.alone_ms,
        memory_mb=memory,
        **asdict(seen),
    )


def _body(number: int) -> dict[str, Any]:
    edits = [{"expert": 100 * number, "mode": "add", "strength": 2.0}] if number % 2 else []
    sampling = {"max_tokens": 16 + 4 * (number % 4), "seed": number, "temperature": 0.9}
    return {"prompt": PROMPTS[number % len(PROMPTS)], "edits": edits, "sampling": sampling}


def _read(
    url: str, path: str, body: dict[str, Any], leaves_after: int | None = None, deadline: float | None = None
) -> list[Token]:
    """Return the sorted tokens of a stream; fewer if the client disconnects or the time is over.

    Raises:
        ValueError: the request fails or ends without ``done``.
    """
    found: list[Token] = []
    for event in events_of(url, path, body):
        if event["event"] == "done":
            return sorted(found)
        if event["event"] == "error":
            raise ValueError(event["error"]["message"])
        if event["event"] == "token":
            found.append((event["variant"], event["sample"], event["position"], event["id"]))
        if len(found) == leaves_after or (deadline is not None and time.monotonic() > deadline):
            return sorted(found)
    raise ValueError("the stream ended early")


def _timed(url: str, path: str, body: dict[str, Any]) -> tuple[list[Token], float]:
    """Return the tokens of a stream, and seconds to the first."""
    started = time.monotonic()
    _read(url, path, body, leaves_after=1)
    waited = time.monotonic() - started
    return _read(url, path, body), waited


def memory_until(process: int, seconds: float, clients: Clients, callbacks: Callbacks) -> Iterator[float]:
    """Return the resident megabytes of a process at ten moments, the last one at the end."""
    watched = psutil.Process(process)
    for moment in range(1, 11):
        time.sleep(max(0.0, clients.deadline - seconds * (10 - moment) / 10 - time.monotonic()))
        callbacks.check_cancelled()
        callbacks.on_progress(round(seconds * moment / 10), round(seconds), clients.note)
        yield watched.memory_info().rss / 2**20
