"""Damaged bytes, and the number of Hypothesis examples: few in ``make test``, FUZZ_EXAMPLES in ``make fuzz``."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

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
        began = time.monotonic()
        try:
            yield
        finally:
            self.count += 1
            self.slowest = max(self.slowest, time.monotonic() - began)

    def reset(self) -> None:
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


@st.composite
def damaged(draw: st.DrawFn, sound: bytes) -> bytes:
    """Damaged versions of ``sound``: truncated, modified, with a part deleted or inserted."""
    kind = draw(st.sampled_from(["cut", "flip", "flip", "splice"]))
    at = draw(st.integers(0, max(0, len(sound) - 1)))
    if kind == "cut":
        return sound[:at]
    if kind == "splice":
        return sound[:at] + draw(st.binary(max_size=40)) + sound[at + draw(st.integers(0, 40)) :]
    changed = bytearray(sound)
    for place, bit in draw(st.lists(st.tuples(st.integers(0, max(0, len(sound) - 1)), st.integers(0, 7)), max_size=8)):
        if place < len(changed):
            changed[place] ^= 1 << bit
    return bytes(changed)


class Hostile:
    """Its pickle makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.path,)
