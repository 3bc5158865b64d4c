"""What a server adds to routing and steering: the way over HTTP, and the events of a stream."""

from __future__ import annotations

import json
import statistics
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from backend.bench.events import data_of


@dataclass(frozen=True)
class ServedBench:
    """What a client on the same machine sees."""

    http_ms: float
    """Between the question and the whole answer of a routing, less the time that the routing itself took."""
    token_gap_ms: float
    """Between one token of a default and steered pair and the next."""
    served_overhead: float
    """The gap over the time of a bare decode step, taken in turn with it."""


def bench_served(
    url: str, run: str, text: str, steering: dict[str, Any], bare_step: Callable[[], float], rounds: int
) -> ServedBench:
    """Ask a server that does nothing else, ``rounds`` times after one to warm up.

    Args:
        url: of the server.
        run: name of a run that it has.
        text: what is routed.
        steering: body of the steering request.
        bare_step: takes the bare decode steps of the same request here; seconds of one.
    """
    path = f"/api/runs/{run}"
    overheads = [_routing_overhead(f"{url}{path}/routing", text) for _ in range(rounds + 1)][1:]
    pairs = [(_token_gap(url, f"{path}/steering", steering), bare_step()) for _ in range(rounds + 1)][1:]
    return ServedBench(
        http_ms=1000 * statistics.median(overheads),
        token_gap_ms=1000 * statistics.median(gap for gap, _ in pairs),
        served_overhead=statistics.median(gap / bare for gap, bare in pairs),
    )


def _routing_overhead(url: str, text: str) -> float:
    body = json.dumps({"text": text}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    started = time.perf_counter()
    with urllib.request.urlopen(request) as answer:
        read = answer.read()
    seconds = time.perf_counter() - started
    return seconds - float(json.loads(read)["took_ms"]) / 1000


def _token_gap(url: str, path: str, body: dict[str, Any]) -> float:
    # Read afterwards: on a small machine the reader would be in the way of the server.
    came = [(time.perf_counter(), data) for data in data_of(url, path, body)]
    events = ((moment, json.loads(data)) for moment, data in came)
    moments = [moment for moment, event in events if event["event"] == "token" and event["arm"] == "default"]
    return (moments[-1] - moments[0]) / (len(moments) - 1)
