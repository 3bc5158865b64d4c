"""Peak memory: of a function in its own process, or of a piece of work beyond what was in use before."""

from __future__ import annotations

import gc
import re
import resource
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch

from mxd.trainer.utils.memory import trim_freed_memory

P = ParamSpec("P")
R = TypeVar("R")

_BYTES = 1 if sys.platform == "darwin" else 1024
"""Unit of ``ru_maxrss`` in bytes."""
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


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
    if _STATUS.is_file():
        return 1024 * _kilobytes("VmHWM")  # unlike getrusage, this does not start at the size of the parent process
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _BYTES


def extra_peak_bytes(work: Callable[[], object], device: str) -> float:
    """Return the peak beyond the start: of the allocator on a GPU, of the resident set elsewhere; NaN if unknown."""
    gc.collect()
    trim_freed_memory()  # otherwise memory freed by earlier work would hide part of the peak
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return torch.cuda.max_memory_allocated() - before
    try:
        _CLEAR.write_text("5")  # resets the high-water mark to the current resident size
        before = _kilobytes("VmRSS")
        work()
        return 1024.0 * (_kilobytes("VmHWM") - before)
    except OSError:
        return float("nan")


def _kilobytes(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", _STATUS.read_text(), flags=re.MULTILINE)
    assert found is not None
    return int(found[1])
