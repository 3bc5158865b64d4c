"""Layer classes by method, and loading of saved layers."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import torch

from mxd.trainer.config import LayerConfig, Method
from mxd.trainer.config.methods import method_traits
from mxd.trainer.layers.base import SparseLayer, read_weights
from mxd.trainer.layers.files import WEIGHTS_FILE, read_layer_config
from mxd.trainer.layers.mxd import GluMxD, MlpMxD
from mxd.trainer.layers.transcoders import Autoencoder, SkipTranscoder, Transcoder
from mxd.trainer.layers.variants.batch_topk import GluBatchTopK, MlpBatchTopK
from mxd.trainer.layers.variants.dense_gate import GluReluMxD, JumpReluSkipTranscoder, JumpReluTranscoder, MlpReluMxD
from mxd.trainer.layers.variants.molt import Molt

_CLASSES: dict[Method, dict[str, type[SparseLayer]]] = {}


def register_layers(method: Method, mlp: type[SparseLayer], glu: type[SparseLayer] | None = None) -> None:
    """Set the classes that implement a method for a plain MLP and for a gated linear unit (default: the same)."""
    _CLASSES[method] = {"mlp": mlp, "glu": glu or mlp}


register_layers("mxd", MlpMxD, GluMxD)
register_layers("relu-mxd", MlpReluMxD, GluReluMxD)
register_layers("batch-topk-mxd", MlpBatchTopK, GluBatchTopK)
register_layers("transcoder", Transcoder)
register_layers("skip-transcoder", SkipTranscoder)
register_layers("autoencoder", Autoencoder)
register_layers("molt", Molt)
register_layers("jumprelu-transcoder", JumpReluTranscoder)
register_layers("jumprelu-skip-transcoder", JumpReluSkipTranscoder)


def build_layer(config: LayerConfig) -> SparseLayer:
    """Build a layer with random weights."""
    if config.method not in _CLASSES:
        import_module(method_traits(config.method).module)
    return _CLASSES[config.method][config.encoder](config)


@torch.inference_mode(mode=False)  # weights created in inference mode could never be trained again
def load_layer(folder: Path) -> SparseLayer:
    """Load a layer that ``SparseLayer.save`` wrote, in float32 on the CPU.

    Raises:
        UserError: the folder holds no layer, or a damaged one.
    """
    config = read_layer_config(folder)
    with torch.device("meta"):
        layer = build_layer(config)
    layer.load_state_dict(read_weights(folder / WEIGHTS_FILE, layer), assign=True)
    return layer.eval()
