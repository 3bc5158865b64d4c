"""Peak memory of a piece of work beyond what was in use before."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from pathlib import Path

import torch

from mxd.trainer.utils.memory import trim_freed_memory

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


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
