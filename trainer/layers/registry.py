"""From a config to the class that it names, and from a folder to a layer."""

from __future__ import annotations

from pathlib import Path

import torch

from trainer.config import LayerConfig
from trainer.errors import UserError
from trainer.layers.mxd import GluMxD, MlpMxD
from trainer.layers.sparse import WEIGHTS_FILE, SparseLayer, read_layer_config, read_weights

CLASSES: dict[tuple[str, str], type[SparseLayer]] = {("mxd", "mlp"): MlpMxD, ("mxd", "glu"): GluMxD}


def build_layer(config: LayerConfig) -> SparseLayer:
    """A new layer of the method and encoder that ``config`` names, with its starting values."""
    try:
        return CLASSES[config.method, config.encoder].from_config(config)
    except KeyError:
        known = ", ".join(sorted({method for method, _ in CLASSES}))
        raise UserError(f"The method {config.method} cannot be fitted here; choose one of: {known}.") from None


def load_layer(folder: Path) -> SparseLayer:
    """The layer that ``SparseLayer.save`` wrote into ``folder``, in float32 on the CPU.

    Raises:
        UserError: the folder holds none, or a damaged one.
    """
    config = read_layer_config(folder)
    with torch.device("meta"):
        layer = build_layer(config)
    layer.load_state_dict(read_weights(folder / WEIGHTS_FILE, layer), assign=True)
    return layer.eval()
