"""Train mixtures of decoders (MxD) on the MLPs of language models, and explore and steer their experts.

``MxD.from_pretrained`` and ``load`` return a layer as a PyTorch module. ``train`` makes one from a Hugging Face model.
``index``, ``evaluate``, ``route``, ``generate`` and ``trace`` measure a run, and ``serve`` opens the dashboard.
"""

from importlib import import_module
from inspect import isfunction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mxd.api.functions import (
        ablate,
        check_circuit,
        contrast,
        evaluate,
        export,
        generate,
        index,
        pack,
        probe,
        recurrence,
        route,
        trace,
    )
    from mxd.api.layer import Layer, MxD, Transcoder, load
    from mxd.api.models import load_model
    from mxd.api.training import finetune, import_run, runs, serve, train
    from mxd.trainer.errors import UserError

    __version__: str

__all__ = [
    "Layer",
    "MxD",
    "Transcoder",
    "UserError",
    "__version__",
    "ablate",
    "check_circuit",
    "contrast",
    "evaluate",
    "export",
    "finetune",
    "generate",
    "import_run",
    "index",
    "load",
    "load_model",
    "pack",
    "probe",
    "recurrence",
    "route",
    "runs",
    "serve",
    "trace",
    "train",
]

_HOMES = {
    "mxd.api.layer": ("Layer", "MxD", "Transcoder", "load"),
    "mxd.api.models": ("load_model",),
    "mxd.api.training": ("finetune", "import_run", "runs", "serve", "train"),
    "mxd.trainer.errors": ("UserError",),
}
"""Module -> its public names. All others are in ``mxd.api.functions``."""


def __getattr__(name: str) -> Any:
    """Import a public name on first use, because importing torch takes seconds. Errors name Python's arguments."""
    if name == "__version__":
        from importlib.metadata import version

        return version("mxd-explorer")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = next((module for module, names in _HOMES.items() if name in names), "mxd.api.functions")
    value = getattr(import_module(home), name)
    return import_module("mxd.api.errors").speaks_python(value) if isfunction(value) else value


def __dir__() -> list[str]:
    return __all__
