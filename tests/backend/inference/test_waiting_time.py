"""Clients that were turned away return one after the other, when the others are done."""

from __future__ import annotations

from mxd.backend.inference.worker import HONEST_SHARE, MovingAverage, ReturnTimes

SECONDS_LEFT = 100.0
AHEAD = 128


def test_clients_return_spread_over_the_time_that_their_own_requests_take() -> None:
    now = [0.0]
    returns = ReturnTimes(lambda: now[0])
    told = [returns.next(SECONDS_LEFT, AHEAD) for _ in range(AHEAD)]
    first_token = [SECONDS_LEFT * (1 + place / AHEAD) for place in range(AHEAD)]
    assert all(0.5 <= seconds / wanted <= 1 for seconds, wanted in zip(told, first_token, strict=True))
    assert told == sorted(told)
    now[0] = 1_000.0
    assert returns.next(SECONDS_LEFT, AHEAD) == HONEST_SHARE * SECONDS_LEFT


def test_clients_that_do_not_wait_delay_the_others_by_no_more_than_a_full_queue() -> None:
    returns = ReturnTimes(lambda: 0.0)
    told = [returns.next(SECONDS_LEFT, AHEAD) for _ in range(10_000)]
    assert max(told) <= 2 * SECONDS_LEFT


def test_the_first_measurements_replace_the_initial_value() -> None:
    average = MovingAverage(100.0)
    average.add(1.0)
    assert average.value == 1.0
    for _ in range(50):
        average.add(2.0)
    assert abs(average.value - 2) < 0.01
