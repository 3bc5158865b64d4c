"""Overhead of HTTP and event streams on top of routing and steering."""

from __future__ import annotations

import json
import statistics
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.backend.events import data_of


@dataclass(frozen=True)
class ServedBench:
    """Latencies seen by a client on the same machine."""

    served_routing_ms: float
    """Time of a routing request."""
    token_gap_ms: float
    """Time between two tokens of a baseline and steered pair."""
    served_overhead: float
    """That gap divided by the time of a bare decode step, interleaved."""


def bench_served(
    url: str, run: str, text: str, steering: dict[str, Any], bare_step: Callable[[], float], rounds: int
) -> ServedBench:
    """Benchmark an idle server, ``rounds`` times after a warm-up.

    Args:
        url: of the server.
        run: name of one of its runs.
        text: to route.
        steering: body of the steering request.
        bare_step: runs the bare decode steps of the same request here; returns seconds per step.
    """
    path = f"/api/runs/{run}"
    routings = [_routing_seconds(f"{url}{path}/routing", text) for _ in range(rounds + 1)][1:]
    pairs = [(_token_gap(url, f"{path}/steering", steering), bare_step()) for _ in range(rounds + 1)][1:]
    return ServedBench(
        served_routing_ms=1000 * statistics.median(routings),
        token_gap_ms=1000 * statistics.median(gap for gap, _ in pairs),
        served_overhead=statistics.median(gap / bare for gap, bare in pairs),
    )


def _routing_seconds(url: str, text: str) -> float:
    body = json.dumps({"text": text}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    started = time.perf_counter()
    with urllib.request.urlopen(request) as answer:
        answer.read()
    return time.perf_counter() - started


def _token_gap(url: str, path: str, body: dict[str, Any]) -> float:
    # Parsed afterwards: on a small machine the parser would slow down the server.
    came = [(time.perf_counter(), data) for data in data_of(url, path, body)]
    events = ((moment, json.loads(data)) for moment, data in came)
    moments = [moment for moment, event in events if event["event"] == "token" and event["variant"] == "baseline"]
    return (moments[-1] - moments[0]) / (len(moments) - 1)
