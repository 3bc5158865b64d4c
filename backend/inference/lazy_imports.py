"""Delayed import of PyTorch and transformers, which takes seconds and which browsing does not need.

Only one thread may import them at a time. Parts of these packages import each other, so two threads that start at
different modules would see each other's partly initialised modules.
"""

from __future__ import annotations

import gc
from importlib import import_module
from threading import Event, RLock

IMPORT_LOCK = RLock()
"""Lock that a thread holds while it imports any of these packages."""
COMPUTE_MODULES = (
    "torch",
    "transformers",
    "mxd.trainer.inference.generation",
    "mxd.trainer.inference.predictions",
    "mxd.trainer.analysis.direct_effects",
    "mxd.trainer.inference.strength_sweep",
)
"""Modules that the first routing, prediction or steering needs."""


def import_compute_modules() -> None:
    """Import ``COMPUTE_MODULES``, or wait until another thread has."""
    with IMPORT_LOCK:
        for module in COMPUTE_MODULES:
            import_module(module)


def preload_compute_modules(after_seconds: float, stop: Event) -> None:
    """Import ``COMPUTE_MODULES`` after a delay, unless ``stop`` is set before.

    Freezes the imported objects for the garbage collector. A full collection would take half a second otherwise, during
    which no request is answered.
    """
    delay = after_seconds
    for module in COMPUTE_MODULES:
        if stop.wait(delay):
            return
        with IMPORT_LOCK:
            import_module(module)
        delay = 0.0
    gc.freeze()
