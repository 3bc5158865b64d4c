"""Train mixtures of decoders (MxD) on the MLPs of language models, and explore and steer their experts.

``MxD.from_pretrained`` and ``load`` return a layer as a PyTorch module. ``train`` makes one from a Hugging Face model.
``index``, ``evaluate``, ``route``, ``generate`` and ``trace`` measure a run, and ``serve`` opens the dashboard.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mxd.api.contrasts import contrast
    from mxd.api.inference import explain_edges, generate, route, trace
    from mxd.api.layer import Layer, MxD, Transcoder
    from mxd.api.loading import load
    from mxd.api.measurements import evaluate, index
    from mxd.api.models import load_model
    from mxd.api.serving import serve
    from mxd.api.training import train
    from mxd.trainer.errors import UserError

    __version__: str

__all__ = [
    "Layer",
    "MxD",
    "Transcoder",
    "UserError",
    "__version__",
    "contrast",
    "evaluate",
    "explain_edges",
    "generate",
    "index",
    "load",
    "load_model",
    "route",
    "serve",
    "trace",
    "train",
]

_HOMES = {
    "Layer": "mxd.api.layer",
    "MxD": "mxd.api.layer",
    "Transcoder": "mxd.api.layer",
    "UserError": "mxd.trainer.errors",
    "contrast": "mxd.api.contrasts",
    "evaluate": "mxd.api.measurements",
    "explain_edges": "mxd.api.inference",
    "generate": "mxd.api.inference",
    "index": "mxd.api.measurements",
    "load": "mxd.api.loading",
    "load_model": "mxd.api.models",
    "route": "mxd.api.inference",
    "serve": "mxd.api.serving",
    "trace": "mxd.api.inference",
    "train": "mxd.api.training",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: importing torch takes seconds, and half of the commands do not need it."""
    if name == "__version__":
        from importlib.metadata import version

        return version("mxd-explorer")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
