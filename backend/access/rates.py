"""How often one client may ask: a bucket of tokens for each, filled at a steady rate."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

CLIENTS_REMEMBERED = 10_000
"""Whoever asked longest ago is forgotten first, so that a flood of addresses costs no memory."""
SECONDS_OF_BURST = 4


@dataclass
class _Bucket:
    level: float
    at: float


class Rates:
    """At most ``per_second`` requests a second from each client, with a burst of four seconds' worth."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._most = max(1.0, per_second * SECONDS_OF_BURST)
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait(self, client: str) -> float:
        """Count a request: 0 where it may go on, otherwise the seconds after which to ask again."""
        now = self._clock()
        bucket = self._buckets.pop(client, None) or _Bucket(self._most, now)
        self._buckets[client] = bucket
        if len(self._buckets) > CLIENTS_REMEMBERED:
            self._buckets.popitem(last=False)
        bucket.level = min(self._most, bucket.level + (now - bucket.at) * self._per_second)
        bucket.at = now
        if bucket.level < 1:
            return (1 - bucket.level) / self._per_second
        bucket.level -= 1
        return 0.0
