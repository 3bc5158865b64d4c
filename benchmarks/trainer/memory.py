"""Peak memory of a function, measured in its own process."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")

_BYTES = 1 if sys.platform == "darwin" else 1024
"""Unit of ``ru_maxrss`` in bytes."""


def peak_bytes(work: Callable[P, object], *given: P.args, **named: P.kwargs) -> int:
    """Return the peak memory of ``work`` in bytes: resident on a CPU, allocated on a GPU.

    Args:
        work: a module-level function.
        given: its positional arguments.
        named: its keyword arguments.
    """
    return in_a_process(_measured, partial(work, *given, **named))


def in_a_process(work: Callable[P, R], *given: P.args, **named: P.kwargs) -> R:
    """Run a module-level function in its own process, with as many threads, and return its result."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(_with_threads, torch.get_num_threads(), partial(work, *given, **named)).result()


def _with_threads(threads: int, work: Callable[[], R]) -> R:
    torch.set_num_threads(threads)
    return work()


def _measured(work: Callable[[], object]) -> int:
    work()
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    status = Path("/proc/self/status")
    if status.is_file():
        # Unlike getrusage, this does not start at the size of the parent process.
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _BYTES
