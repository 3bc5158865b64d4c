"""Features of texts: mean gate activations of experts, and the mean residual stream after the layer.

Shapes: E texts, B texts of a batch, T tokens, N experts, W width of the residual stream, I input width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mxd.trainer.language_model.mlp_hooks import Mlp
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.language_model.residuals import residual_at
from mxd.trainer.language_model.tokenizer import start_token_id
from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import Callbacks

Floats = npt.NDArray[np.float32]
TEXTS_AT_ONCE = 16


@dataclass(frozen=True)
class TextFeatures:
    """Features of all texts."""

    activation_EN: tuple[Floats, ...]
    """Mean gate activation of each expert, for each run."""
    residual_EW: Floats
    """Mean residual stream after the layer."""
    density_N: tuple[Floats, ...]
    """Share of the tokens on which each expert is active, for each run."""


@torch.no_grad()
def text_features(
    language_model: LanguageModel, runs: Sequence[Run], texts: Sequence[str], tokens: int, callbacks: Callbacks
) -> TextFeatures:
    """Read the first ``tokens`` tokens of each text once, through the layers of all ``runs``, which replace one MLP.

    Raises:
        CancelledError: the task was cancelled.
    """
    layer, start = runs[0].config.layer, start_token_id(language_model.tokenizer, runs[0].config.text.start_token)
    layers = [run.layer.to(language_model.device_of(layer)) for run in runs]
    ids = [language_model.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] for text in texts]
    parts: list[list[list[Tensor]]] = []
    for first in range(0, len(ids), TEXTS_AT_ONCE):
        callbacks.check_cancelled()
        batch = [[start, *each[:tokens]] for each in ids[first : first + TEXTS_AT_ONCE]]
        parts += _batch_features(language_model, layer, layers, batch)
        callbacks.on_progress(min(first + TEXTS_AT_ONCE, len(ids)), len(ids), "reading texts")
    residuals, *of_runs = zip(*parts, strict=True)
    activation, active = ([torch.stack([text[part] for text in run]).numpy() for run in of_runs] for part in (0, 1))
    return TextFeatures(
        activation_EN=tuple(activation),
        residual_EW=torch.stack([text[0] for text in residuals]).numpy(),
        density_N=tuple(each_EN.mean(axis=0) for each_EN in active),
    )


def _batch_features(
    language_model: LanguageModel, layer: int, layers: Sequence[SparseLayer], batch: Sequence[Sequence[int]]
) -> list[list[list[Tensor]]]:
    """For each text: [mean residual], then [mean activations, share of active tokens] for each layer. The start token
    does not count."""
    width = max(map(len, batch))
    # Padding on the right does not change the tokens before it.
    ids_BT = torch.tensor([[*ids, *[0] * (width - len(ids))] for ids in batch])
    captured: list[MlpActivations] = []

    def watch(x_BTI: Tensor, mlp: Mlp) -> Tensor:
        output_BTO = mlp()
        captured.append(MlpActivations(x_BTI, output_BTO))
        return output_BTO

    with language_model.replace_mlps({layer: watch}):
        residual_BTW = residual_at(language_model, layer + 1, ids_BT).float().cpu()
    (activations,) = captured
    features: list[list[list[Tensor]]] = []
    for row, ids in enumerate(batch):
        own: list[list[Tensor]] = [[residual_BTW[row, 1 : len(ids)].mean(dim=0)]]
        for sparse_layer in layers:
            routing = sparse_layer.route(activations.inputs_for(sparse_layer)[row, 1 : len(ids)].float())
            dense_TN = torch.zeros(len(ids) - 1, sparse_layer.config.num_experts)
            dense_TN.scatter_add_(1, routing.indices_TK.cpu(), routing.coefficients_TK.float().cpu())
            own.append([dense_TN.mean(dim=0), (dense_TN > 0).float().mean(dim=0)])
        features.append(own)
    return features
