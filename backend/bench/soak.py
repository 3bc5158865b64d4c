"""Many clients that stream from one server at once, some of which leave midway: is anything wrong, stuck or growing?"""

from __future__ import annotations

import http.client
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil

from backend.bench.events import PATIENCE_SECONDS, events_of
from trainer.progress import Progress

LEAVING = 3
"""One in so many leaves midway."""
PROMPTS = (
    "One day, the little girl went to the",
    "It was a long day, and",
    "User: I need a table for two.",
    "def total(",
)

Token = tuple[str, int, int, int]
"""Arm, sample, position, id."""


@dataclass(frozen=True)
class SoakBench:
    """What ``mxd bench soak`` reports."""

    seconds: float
    clients: int
    finished: int
    """Generations that were read to their end."""
    left: int
    """Whose client left midway."""
    wrong: int
    """Whose tokens were not those of the same request alone."""
    stuck: int
    failed: int
    """With an error, or a connection that ended early."""
    tokens: int
    after_ms: float
    """Until a request that is made when all others have just left has its first token."""
    alone_ms: float
    """The same before anybody came; the median of the requests that are compared with."""
    memory_mb: tuple[float, ...]
    """Resident memory of the server at ten moments, evenly apart; empty where the system does not tell."""


@dataclass
class _Tally:
    counts: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, **counts: int) -> None:
        with self.lock:
            self.counts.update(counts)


def bench_soak(url: str, process: int, run: str, clients: int, seconds: float, progress: Progress) -> SoakBench:
    """Let clients stream for a while.

    Args:
        url: of a server that has been asked nothing yet.
        process: id of its process.
        run: name of a run that it has.
    """
    path = f"/api/runs/{run}/steering"
    bodies = [_body(number) for number in range(12)]
    _read(url, path, bodies[0])  # the language model is loaded
    alone, waits = zip(*(_timed(url, path, body) for body in bodies), strict=True)
    tally, deadline = _Tally(), time.monotonic() + seconds
    threads = [
        threading.Thread(target=_client, args=(url, path, bodies, alone, number, deadline, tally), daemon=True)
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    memory = list(_memory_until(process, deadline, seconds, tally, progress))
    for thread in threads:
        thread.join(PATIENCE_SECONDS + 30)
    _, after = _timed(url, path, bodies[0])
    counts = tally.counts
    return SoakBench(
        seconds=seconds,
        clients=clients,
        finished=counts["finished"],
        left=counts["left"],
        wrong=counts["wrong"],
        stuck=counts["stuck"] + sum(thread.is_alive() for thread in threads),
        failed=counts["failed"],
        tokens=counts["tokens"],
        after_ms=1000 * after,
        alone_ms=1000 * statistics.median(waits),
        memory_mb=tuple(memory),
    )


def _body(number: int) -> dict[str, Any]:
    edits = [{"expert": 100 * number, "mode": "add", "strength": 2.0}] if number % 2 else []
    sampling = {"max_tokens": 16 + 4 * (number % 4), "seed": number, "temperature": 0.9}
    return {"prompt": PROMPTS[number % len(PROMPTS)], "edits": edits, "sampling": sampling}


def _client(
    url: str,
    path: str,
    bodies: list[dict[str, Any]],
    alone: tuple[list[Token], ...],
    number: int,
    deadline: float,
    tally: _Tally,
) -> None:
    """Ask for one generation after the other; in the end all leave, in the middle of what they read."""
    chance = random.Random(number)
    while time.monotonic() < deadline:
        which = chance.randrange(len(bodies))
        leaves_after = chance.randrange(1, len(alone[which])) if chance.randrange(LEAVING) == 0 else None
        try:
            found = _read(url, path, bodies[which], leaves_after, deadline)
        except TimeoutError:
            tally.add(stuck=1)
        except (OSError, http.client.HTTPException, ValueError):
            tally.add(failed=1)
        else:
            wanted = alone[which]
            whole = len(found) == len(wanted)
            wrong = not set(found) <= set(wanted)
            tally.add(finished=int(whole), left=int(not whole), wrong=int(wrong), tokens=len(found))


def _read(
    url: str, path: str, body: dict[str, Any], leaves_after: int | None = None, deadline: float | None = None
) -> list[Token]:
    """The tokens of a stream, sorted; fewer where the client leaves, or the time is over.

    Raises:
        ValueError: it is refused, fails, or ends without ``done``.
    """
    found: list[Token] = []
    for event in events_of(url, path, body):
        if event["event"] == "done":
            return sorted(found)
        if event["event"] == "error":
            raise ValueError(event["error"]["message"])
        if event["event"] == "token":
            found.append((event["arm"], event["sample"], event["position"], event["id"]))
        if len(found) == leaves_after or (deadline is not None and time.monotonic() > deadline):
            return sorted(found)
    raise ValueError("the stream has ended early")


def _timed(url: str, path: str, body: dict[str, Any]) -> tuple[list[Token], float]:
    """The tokens of a stream, and seconds until the first."""
    started = time.monotonic()
    _read(url, path, body, leaves_after=1)
    waited = time.monotonic() - started
    return _read(url, path, body), waited


def _memory_until(process: int, deadline: float, seconds: float, tally: _Tally, progress: Progress) -> Iterator[float]:
    """Resident megabytes of a process at ten moments, the last at the deadline."""
    watched = psutil.Process(process)
    for moment in range(1, 11):
        time.sleep(max(0.0, deadline - seconds * (10 - moment) / 10 - time.monotonic()))
        counts = tally.counts
        note = (
            f"{counts['finished']} finished, {counts['left']} left, {counts['wrong']} wrong, {counts['failed']} failed"
        )
        progress(round(seconds * moment / 10), round(seconds), note)
        yield watched.memory_info().rss / 2**20
