"""Importing what takes seconds, PyTorch and transformers, when it is wanted or soon after the server answers: browsing
has no need of most of it.

By one thread at a time. Parts of these packages import each other, and two threads that begin at different ends would
each be handed what the other has half made.
"""

from __future__ import annotations

import gc
from importlib import import_module
from threading import Event, RLock

ALONE = RLock()
"""Held by whoever imports any of it."""
COMPUTING = ("torch", "transformers", "trainer.generation", "trainer.predictions", "trainer.effects", "trainer.dose")
"""All that a first routing, prediction or steering would have to wait for."""


def import_what_computes() -> None:
    """Import all of it now, or wait until another thread has."""
    with ALONE:
        for module in COMPUTING:
            import_module(module)


def import_ahead(after_seconds: float, stop: Event) -> None:
    """Wait a while, then import all of it.

    What has been imported stays: the collector need not look through it again. It would whenever many requests have
    come and gone, and nobody is answered for the half second that this takes.
    """
    pause = after_seconds
    for module in COMPUTING:
        if stop.wait(pause):
            return
        with ALONE:
            import_module(module)
        pause = 0.0
    gc.freeze()
