"""Have the C library keep what is freed: tensors of tens of megabytes come and go in every step.

As it is set up, glibc asks the system for each of them and gives it back at once, so that every step's pages are mapped
and cleared anew; that took a fifth of a step's time and a third of a forward pass's.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
_MOST = 2**31 - 1
_GROWTH = 1 << 26


def keep_freed_memory() -> bool:
    """From now on, in all of this process. Whether that could be had: elsewhere than in glibc nothing is changed."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    asked = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _MOST), (_TOP_PAD, _GROWTH))
    return all(mallopt(option, value) == 1 for option, value in asked)
