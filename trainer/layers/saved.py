"""A fitted layer's files, for who does not load it: PyTorch takes seconds to import."""

from __future__ import annotations

from pathlib import Path

from trainer.config import LayerConfig
from trainer.errors import NotFoundError, UserError
from trainer.files import read_json

CONFIG_FILE = "layer.json"
WEIGHTS_FILE = "layer.safetensors"


def read_layer_config(folder: Path) -> LayerConfig:
    """The config beside a layer's weights.

    Raises:
        NotFoundError: there is none.
        UserError: it is not a layer's config.
    """
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise NotFoundError(f"{folder} holds no fitted layer ({CONFIG_FILE} is missing); fit one with mxd train.")
    try:
        return LayerConfig.model_validate(read_json(path))
    except ValueError as error:
        raise UserError(f"{path} is not a layer's config; restore it from a copy or fit the run again.") from error
