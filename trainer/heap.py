"""Have the C library keep what is freed: tensors of tens of megabytes come and go in every step.

As it is set up, glibc asks the system for each of them and gives it back at once, so that every step's pages are mapped
and cleared anew; that took a fifth of a step's time and a third of a forward pass's.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_MOST = 2**31 - 1
_GROWTH = 1 << 26


def keep_freed_memory() -> bool:
    """From now on, in all of this process. Whether that could be had: elsewhere than in glibc nothing is changed."""
    return _set((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _MOST), (_TOP_PAD, _GROWTH))


def keep_memory_freed_in_threads() -> bool:
    """The same, for a process that computes in threads: as it is set up, each has a small heap of its own, which is
    given back whenever it is empty. Call it before they are begun."""
    return _set((_ARENA_MAX, 1)) and keep_freed_memory()


def give_back_freed_memory() -> None:
    """Let the system have what is free at this moment, so that what is resident is in use; in glibc alone."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _set(*options: tuple[int, int]) -> bool:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    return all(mallopt(option, value) == 1 for option, value in options)
