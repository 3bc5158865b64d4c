"""Rates: a burst, then a steady rate, for each client by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mxd.backend.api.middleware import limits
from mxd.backend.api.middleware.limits import SECONDS_OF_BURST, RateLimiter


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_then_a_steady_rate() -> None:
    clock = Clock()
    limit = RateLimiter(2.0, clock)
    assert [limit.wait("a") for _ in range(2 * SECONDS_OF_BURST)] == [0.0] * 8
    seconds = limit.wait("a")
    assert seconds == 0.5
    assert limit.wait("b") == 0.0
    clock.now += seconds
    assert limit.wait("a") == 0.0
    assert limit.wait("a") == 0.5


@given(st.lists(st.floats(0, 3), min_size=1, max_size=60), st.floats(0.1, 20))
def test_requests_never_exceed_burst_and_rate(pauses: list[float], per_second: float) -> None:
    clock = Clock()
    limit = RateLimiter(per_second, clock)
    passed = 0
    for pause in pauses:
        clock.now += pause
        passed += limit.wait("a") == 0.0
    assert passed <= max(1.0, per_second * SECONDS_OF_BURST) + clock.now * per_second + 1e-6


def test_many_clients_use_bounded_memory() -> None:
    limit = RateLimiter(1.0, Clock())
    for number in range(limits.CLIENTS_REMEMBERED + 50):
        limit.wait(str(number))
    assert len(limit._buckets) == limits.CLIENTS_REMEMBERED
