"""Train mixtures of decoders (MxD) on the MLPs of language models, and explore and steer their experts.

``train``, ``index``, ``expert``, ``route`` and ``steer`` operate on a ``LanguageModel`` and a ``Run``. ``generate`` is
``steer`` without the baseline text, ``build_index`` is ``index`` with every setting, and ``trace`` draws circuits.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mxd.trainer.analysis.circuits.tracing import trace
    from mxd.trainer.analysis.expert import expert
    from mxd.trainer.analysis.indexing import build_index
    from mxd.trainer.api import index, train
    from mxd.trainer.inference.routing import route
    from mxd.trainer.inference.steering import generate, steer
    from mxd.trainer.language_model.model import LanguageModel
    from mxd.trainer.storage.run import Run

__all__ = ["LanguageModel", "Run", "build_index", "expert", "generate", "index", "route", "steer", "trace", "train"]

_HOMES = {
    "LanguageModel": "mxd.trainer.language_model.model",
    "Run": "mxd.trainer.storage.run",
    "build_index": "mxd.trainer.analysis.indexing",
    "expert": "mxd.trainer.analysis.expert",
    "generate": "mxd.trainer.inference.steering",
    "index": "mxd.trainer.api",
    "route": "mxd.trainer.inference.routing",
    "steer": "mxd.trainer.inference.steering",
    "trace": "mxd.trainer.analysis.circuits.tracing",
    "train": "mxd.trainer.api",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: importing torch takes seconds, and half of the commands do not need it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
