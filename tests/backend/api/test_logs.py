"""Repeated problems do not fill the disk with log."""

from __future__ import annotations

import logging

from mxd.backend.api.logs import PERIOD_SECONDS, REPEATS_LOGGED, RepetitionFilter


def record(level: int, message: str) -> logging.LogRecord:
    """Return a log record."""
    return logging.LogRecord("asyncio", level, "", 0, message, None, None)


def test_a_repeated_problem_is_logged_a_few_times_per_period() -> None:
    now = [0.0]
    limited = RepetitionFilter(lambda: now[0])
    problems = [record(logging.ERROR, f"accept() failed\nsocket {place}") for place in range(1_000)]
    passed = [problem for problem in problems if limited.filter(problem)]
    assert len(passed) == REPEATS_LOGGED
    assert "further ones are not logged" in passed[-1].getMessage()
    assert limited.filter(record(logging.ERROR, "something else"))
    assert all(limited.filter(record(logging.INFO, "a request")) for _ in range(100))
    now[0] = PERIOD_SECONDS + 1
    assert limited.filter(record(logging.ERROR, "accept() failed"))
