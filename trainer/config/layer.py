"""Settings of a layer, saved beside its weights."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from mxd.trainer.config.base import FLAT_GATE, Config, Size, without_retired
from mxd.trainer.config.methods import Activation, Encoder, Method, Mixing


class LayerConfig(Config):
    """Everything needed to build a sparse layer before its weights are read."""

    method: Method = "mxd"
    """Kind of layer."""
    input_width: Size
    """Input width I of the layer: the MLP's input width, or for an autoencoder the MLP's output width."""
    hidden_width: Size
    """Hidden width H of the shared encoder."""
    output_width: Size
    """Output width O of the MLP."""
    num_experts: Size
    """Number of experts N."""
    k: Size
    """Largest number of active experts per token, K; the mean number for a batch-topk-mxd."""
    activation: Activation
    """Activation function of the encoder. gelu_tanh is the tanh approximation of GELU; silu is also known as Swish."""
    encoder: Encoder
    """Encoder: mlp is act(x E), glu is act(x E_g) * (x E)."""
    mixing: Mixing = "paper"
    """Mixing of an MxD: paper is a C; centred is a C minus its median over the training tokens."""
    rank: Size | None = None
    """Rank of the experts; for a molt, the largest rank. None if the method has no rank."""
    min_k: Size | None = None
    """Smallest K that the layer was trained for (Matryoshka-K). None if it was trained with K only."""

    @model_validator(mode="before")
    @classmethod
    def _drop_retired(cls, values: Any) -> Any:
        return without_retired(values, {"gate": FLAT_GATE})
