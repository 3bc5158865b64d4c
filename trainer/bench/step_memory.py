"""How much memory a piece of work takes at its peak, above what was there before."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from pathlib import Path

import torch

from trainer.heap import give_back_freed_memory

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def extra_peak_bytes(work: Callable[[], object], device: str) -> float:
    """Peak above the start: of the allocator on a GPU, of the resident set elsewhere; NaN where neither is told."""
    gc.collect()
    give_back_freed_memory()  # or work would seem to take less than it does, by what earlier work has left lying free
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return torch.cuda.max_memory_allocated() - before
    try:
        _CLEAR.write_text("5")  # the high-water mark begins again at what is resident now
        before = _kilobytes("VmRSS")
        work()
        return 1024.0 * (_kilobytes("VmHWM") - before)
    except OSError:
        return float("nan")


def _kilobytes(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", _STATUS.read_text(), flags=re.MULTILINE)
    assert found is not None
    return int(found[1])
