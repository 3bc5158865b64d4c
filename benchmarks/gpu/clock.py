"""Seconds of an operation on a CPU or a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable

WARM_UP_MS, REPEAT_MS = 50, 300


def median_seconds(work: Callable[[], object], device: str) -> float:
    """Median seconds by device events over ``REPEAT_MS`` on a GPU; those of one call, for a rehearsal, on a CPU."""
    if device.startswith("cuda"):
        from triton.testing import do_bench

        return float(do_bench(work, warmup=WARM_UP_MS, rep=REPEAT_MS, return_mode="median")) / 1000
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
