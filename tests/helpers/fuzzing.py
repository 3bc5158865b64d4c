"""Number of Hypothesis examples: a few fixed ones in ``make test``, FUZZ_EXAMPLES in ``make fuzz``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings

WANTED = os.environ.get("FUZZ_EXAMPLES")
SLOW_IS_FINE = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
Test = TypeVar("Test", bound=Callable[..., Any])


@dataclass
class Cases:
    """Cases that were tried, which ``scripts/attacks.py`` reports."""

    count: int = 0
    slowest: float = 0.0
    """Seconds of the slowest case."""

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the context as one case."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.count += 1
            self.slowest = max(self.slowest, time.monotonic() - began)

    def reset(self) -> None:
        """Start again."""
        self.count, self.slowest = 0, 0.0


CASES = Cases()


def tried(few: int) -> Callable[[Test], Test]:
    """Decorator of a Hypothesis test: try ``few`` examples unless FUZZ_EXAMPLES is set, and count them."""
    limits = settings(
        max_examples=int(WANTED) if WANTED else few,
        derandomize=not WANTED,
        deadline=None,
        database=None,
        suppress_health_check=(*SLOW_IS_FINE, HealthCheck.function_scoped_fixture),
    )

    def decorate(test: Test) -> Test:
        handle: Any = test.hypothesis  # type: ignore[attr-defined]
        inner = handle.inner_test

        @wraps(inner)
        def counted(*args: Any, **kwargs: Any) -> Any:
            with CASES.timed():
                return inner(*args, **kwargs)

        handle.inner_test = counted
        return limits(test)

    return decorate
