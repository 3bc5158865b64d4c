"""How long a client that was turned away should wait: measured speed times the work ahead."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

NEWEST_SHARE = 0.2
"""Weight of the newest measurement in a moving average."""
HONEST_SHARE = 0.75
"""Share of the estimated wait after which a client should return. It then waits for the rest in the queue, and an
estimate that is up to a third too long does not leave the server idle."""


class MovingAverage:
    """Exponential moving average of measured values."""

    def __init__(self, initial: float) -> None:
        self.value = initial
        self._count = 0

    def add(self, measured: float) -> None:
        """Add a measurement. The first ones replace the initial value quickly."""
        self._count += 1
        self.value += max(NEWEST_SHARE, 1 / self._count) * (measured - self.value)


class ReturnTimes:
    """Spreads the return of clients that were turned away over time, so that they do not all return at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._expected: deque[float] = deque()
        """Times at which earlier clients will return, in increasing order."""

    def next(self, seconds_left: float, requests_ahead: int) -> float:
        """Return the seconds after which a client should return.

        Args:
            seconds_left: estimated time until the requests ahead have ended.
            requests_ahead: requests that run or wait.
        """
        now = self._clock()
        while self._expected and self._expected[0] <= now:
            self._expected.popleft()
        # Clients that return earlier than told must not make the others wait longer and longer.
        returning = min(len(self._expected), requests_ahead)
        seconds = max(1.0, HONEST_SHARE * seconds_left * (1 + returning / requests_ahead))
        if len(self._expected) < requests_ahead:
            self._expected.append(max(now + seconds, self._expected[-1] if self._expected else now))
        return seconds
