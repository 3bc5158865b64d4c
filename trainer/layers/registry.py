"""From a config to the class that it names, and from a folder to a layer."""

from __future__ import annotations

from pathlib import Path

import torch

from trainer import few_rows
from trainer.config import Encoder, LayerConfig, Method
from trainer.layers.ablations import GluLowRankMxD, GluReluMxD, MlpLowRankMxD, MlpReluMxD
from trainer.layers.baselines import Autoencoder, SkipTranscoder, Transcoder
from trainer.layers.batch_top_k import GluBatchTopK, MlpBatchTopK
from trainer.layers.cross_layer import GluCrossLayer, MlpCrossLayer
from trainer.layers.jumprelu import JumpReluSkipTranscoder, JumpReluTranscoder
from trainer.layers.learnt_thresholds import GluLearntThresholds, MlpLearntThresholds
from trainer.layers.molt import Molt
from trainer.layers.mxd import GluMxD, MlpMxD
from trainer.layers.peer import Peer
from trainer.layers.saved import WEIGHTS_FILE, read_layer_config
from trainer.layers.sparse import SparseLayer, read_weights
from trainer.layers.tensor_ring import GluTensorRing, MlpTensorRing

CLASSES: dict[tuple[Method, Encoder], type[SparseLayer]] = {
    ("mxd", "mlp"): MlpMxD,
    ("mxd", "glu"): GluMxD,
    ("transcoder", "mlp"): Transcoder,
    ("transcoder", "glu"): Transcoder,
    ("skip-transcoder", "mlp"): SkipTranscoder,
    ("skip-transcoder", "glu"): SkipTranscoder,
    ("autoencoder", "mlp"): Autoencoder,
    ("autoencoder", "glu"): Autoencoder,
    ("relu-mxd", "mlp"): MlpReluMxD,
    ("relu-mxd", "glu"): GluReluMxD,
    ("batch-topk-mxd", "mlp"): MlpBatchTopK,
    ("batch-topk-mxd", "glu"): GluBatchTopK,
    ("jumprelu-mxd", "mlp"): MlpLearntThresholds,
    ("jumprelu-mxd", "glu"): GluLearntThresholds,
    ("low-rank-mxd", "mlp"): MlpLowRankMxD,
    ("low-rank-mxd", "glu"): GluLowRankMxD,
    ("tensor-ring-mxd", "mlp"): MlpTensorRing,
    ("tensor-ring-mxd", "glu"): GluTensorRing,
    ("cross-layer-mxd", "mlp"): MlpCrossLayer,
    ("cross-layer-mxd", "glu"): GluCrossLayer,
    ("molt", "mlp"): Molt,
    ("molt", "glu"): Molt,
    ("peer", "mlp"): Peer,
    ("peer", "glu"): Peer,
    ("jumprelu-transcoder", "mlp"): JumpReluTranscoder,
    ("jumprelu-transcoder", "glu"): JumpReluTranscoder,
    ("jumprelu-skip-transcoder", "mlp"): JumpReluSkipTranscoder,
    ("jumprelu-skip-transcoder", "glu"): JumpReluSkipTranscoder,
}
"""What each method is, for an MLP and for a gated linear unit."""


def build_layer(config: LayerConfig) -> SparseLayer:
    """A new layer of the method and encoder that ``config`` names, with its starting values."""
    return CLASSES[config.method, config.encoder].from_config(config)


@torch.inference_mode(mode=False)  # whoever asks first: weights made in inference mode could never be fitted again
def load_layer(folder: Path) -> SparseLayer:
    """The layer that ``SparseLayer.save`` wrote into ``folder``, in float32 on the CPU.

    Raises:
        UserError: the folder holds none, or a damaged one.
    """
    config = read_layer_config(folder)
    with torch.device("meta"):
        layer = build_layer(config)
    layer.load_state_dict(read_weights(folder / WEIGHTS_FILE, layer), assign=True)
    layer.gate.check()
    few_rows.turn(layer)
    return layer.eval()
