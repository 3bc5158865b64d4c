"""Fit layers of experts to language models, index them, look at them, route through them and steer with them.

``fit``, ``index``, ``expert``, ``route`` and ``steer`` carry the library, on a ``LanguageModel`` and a ``Run``;
``generate`` is ``steer`` where the text alone is wanted, ``build_index`` is ``index`` with every setting, and ``trace``
draws circuits.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer.circuits.tracing import trace
    from trainer.in_python import fit, index
    from trainer.indexing import build_index
    from trainer.language_model import LanguageModel
    from trainer.looking import expert
    from trainer.routing import route
    from trainer.run import Run
    from trainer.steering import generate, steer

__all__ = ["LanguageModel", "Run", "build_index", "expert", "fit", "generate", "index", "route", "steer", "trace"]

_HOMES = {
    "LanguageModel": "trainer.language_model",
    "Run": "trainer.run",
    "build_index": "trainer.indexing",
    "expert": "trainer.looking",
    "fit": "trainer.in_python",
    "generate": "trainer.steering",
    "index": "trainer.in_python",
    "route": "trainer.routing",
    "steer": "trainer.steering",
    "trace": "trainer.circuits.tracing",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: torch takes seconds, and half of the commands do without it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
