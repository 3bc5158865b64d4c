"""Fit layers of experts to language models, index them, route through them and steer with them.

``LanguageModel``, ``Run``, ``build_index``, ``generate``, ``route`` and ``steer`` carry the library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer.indexing import build_index
    from trainer.language_model import LanguageModel
    from trainer.routing import route
    from trainer.run import Run
    from trainer.steering import generate, steer

__all__ = ["LanguageModel", "Run", "build_index", "generate", "route", "steer"]

_HOMES = {
    "LanguageModel": "trainer.language_model",
    "Run": "trainer.run",
    "build_index": "trainer.indexing",
    "generate": "trainer.steering",
    "route": "trainer.routing",
    "steer": "trainer.steering",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: torch takes seconds, and half of the commands do without it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
