"""Rate limit per client: a token bucket for each."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

CLIENTS_REMEMBERED = 10_000
"""Largest number of clients remembered; the least recent is forgotten first, which bounds the memory."""
SECONDS_OF_BURST = 4


@dataclass
class _TokenBucket:
    level: float
    at: float


class RateLimiter:
    """Allows ``per_second`` requests per second and client, with a burst of four seconds' worth."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._most = max(1.0, per_second * SECONDS_OF_BURST)
        self._clock = clock
        self._buckets: OrderedDict[str, _TokenBucket] = OrderedDict()

    def wait(self, client: str) -> float:
        """Count a request. Returns 0 if it is allowed, otherwise the seconds to wait."""
        now = self._clock()
        bucket = self._buckets.pop(client, None) or _TokenBucket(self._most, now)
        self._buckets[client] = bucket
        if len(self._buckets) > CLIENTS_REMEMBERED:
            self._buckets.popitem(last=False)
        bucket.level = min(self._most, bucket.level + (now - bucket.at) * self._per_second)
        bucket.at = now
        if bucket.level < 1:
            return (1 - bucket.level) / self._per_second
        bucket.level -= 1
        return 0.0
