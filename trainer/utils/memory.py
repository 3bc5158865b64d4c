"""Keep freed memory in the process heap: training allocates tensors of tens of megabytes in every step.

By default glibc returns such blocks to the system immediately, so every step maps and clears its pages again. That
took a fifth of a training step and a third of a forward pass.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
"""Option numbers of glibc's mallopt."""
_INT_MAX = 2**31 - 1
HEAP_GROWTH_BYTES = 1 << 26


def keep_freed_memory() -> bool:
    """Stop glibc from returning freed memory to the system. Return False, without effect, on other C libraries."""
    return _mallopt((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _INT_MAX), (_TOP_PAD, HEAP_GROWTH_BYTES))


def keep_freed_memory_in_threads() -> bool:
    """Like ``keep_freed_memory``, for a process that computes in threads. Call it before starting them. By default each
    thread has a small heap of its own, which is returned to the system whenever it is empty."""
    return _mallopt((_ARENA_MAX, 1)) and keep_freed_memory()


def trim_freed_memory() -> None:
    """Return free memory to the system (glibc only), so that resident memory is memory in use."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def release_pages(tensor: Tensor) -> None:
    """Return the memory of a contiguous tensor to the system (main memory on Linux only). Its values are lost."""
    if tensor.device.type != "cpu" or sys.platform != "linux":
        return
    first = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (tensor.data_ptr() + tensor.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
    if size > 0:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), mmap.MADV_DONTNEED)


def _mallopt(*options: tuple[int, int]) -> bool:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    return all(mallopt(option, value) == 1 for option, value in options)
