"""Files of a trained layer that can be read without importing PyTorch, which takes seconds."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open

from mxd.trainer.config import LayerConfig
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.utils.files import read_json

CONFIG_FILE = "layer.json"
WEIGHTS_FILE = "layer.safetensors"
BITS = {"U8": 5, "I8": 8}
"""Data type of a rounded matrix in the file -> bits per weight; see ``ops.quantization``."""


def read_layer_config(folder: Path) -> LayerConfig:
    """Read the config beside a layer's weights.

    Raises:
        NotFoundError: the file does not exist.
        UserError: the file is not a layer config.
    """
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise NotFoundError(f"No trained layer in {folder}: {CONFIG_FILE} is missing. Train one with mxd train.")
    try:
        return LayerConfig.model_validate(read_json(path))
    except ValueError as error:
        raise UserError(f"Invalid layer config: {path}. Restore it from a copy or train the run again.") from error


def stored_bits(weights: Path) -> int | None:
    """Bits per weight of a layer whose matrices are stored rounded, such as a demo's; None for others."""
    try:
        with safe_open(weights, "np") as file:
            dtypes = {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError):
        return None
    return next((bits for dtype, bits in BITS.items() if dtype in dtypes), None)
