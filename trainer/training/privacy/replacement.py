"""A model with MxDs in place of MLPs, of which only C and the gates are trained.

Shapes: S texts, T tokens of a text, P predictions, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.layers.mxd import MxD
from mxd.trainer.storage.run import Run
from mxd.trainer.training.privacy.passages import EncodedTexts

MICROBATCH_TEXTS = 8
"""Texts per forward and backward pass, which bounds memory."""
GATE = "gate."
SCALINGS = "scaling_NO"

Loss = Callable[[Tensor, Tensor], Tensor]
"""Function of logits [P, V] and next tokens [P] that returns losses [P]."""


def next_token_loss(logits_PV: Tensor, next_P: Tensor) -> Tensor:
    """Next-token loss in nats, [P]."""
    return F.cross_entropy(logits_PV, next_P, reduction="none")


@dataclass(frozen=True)
class ReplacementModel:
    """A model in which layers replace MLPs."""

    language_model: LanguageModel
    layers: Mapping[int, SparseLayer]
    """Layers by layer index."""

    @classmethod
    def from_runs(cls, language_model: LanguageModel, runs: Sequence[Run]) -> Self:
        """Replace MLPs by copies of the runs' layers.

        Raises:
            UserError: a run is not an MxD.
        """
        return cls(language_model, {run.config.layer: _trainable_layer(language_model, run) for run in runs})

    def copy(self) -> ReplacementModel:
        """Copy with separate layers."""
        return ReplacementModel(self.language_model, copy.deepcopy(dict(self.layers)))

    def trainable_parameters(self) -> list[nn.Parameter]:
        """C and the gate of every layer, in a fixed order."""
        return [
            parameter for layer in self.layers.values() for parameter in layer.parameters() if parameter.requires_grad
        ]

    def load(self, values: Sequence[Tensor]) -> None:
        """Set the trainable parameters."""
        with torch.no_grad():
            for parameter, value in zip(self.trainable_parameters(), values, strict=True):
                parameter.copy_(value)

    def snapshot(self) -> list[Tensor]:
        """Copies of the trainable parameters."""
        return [parameter.detach().clone() for parameter in self.trainable_parameters()]

    def predictions(self, texts: EncodedTexts) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield logits [P, V] and next tokens [P] of the scored predictions, some texts at a time."""
        for start in range(0, len(texts), MICROBATCH_TEXTS):
            part = texts.select(slice(start, start + MICROBATCH_TEXTS))
            ids_ST = part.ids_ST.to(self.language_model.device)
            is_scored_ST = part.is_scored_ST.to(ids_ST.device)
            with self.language_model.replace(self.layers):
                logits_STV = self.language_model.module(input_ids=ids_ST, use_cache=False).logits
            yield logits_STV[is_scored_ST].float(), ids_ST.roll(-1, 1)[is_scored_ST]

    def gradient(self, texts: EncodedTexts, loss: Loss, weight: float) -> tuple[float, list[Tensor]]:
        """Mean loss over the scored predictions, and the gradients of ``weight`` times it."""
        parameters, total = self.trainable_parameters(), texts.predictions
        value, gradients = 0.0, [torch.zeros_like(parameter) for parameter in parameters]
        with torch.enable_grad():
            for logits_PV, next_P in self.predictions(texts):
                share = loss(logits_PV, next_P).sum() / total
                for total_gradient, gradient in zip(
                    gradients, torch.autograd.grad(weight * share, parameters), strict=True
                ):
                    total_gradient += gradient
                value += share.item()
        return value, gradients


def score_all(ids_SL: Tensor) -> EncodedTexts:
    """Sequences of equal length whose predictions are all scored."""
    is_scored_SL = torch.ones_like(ids_SL, dtype=torch.bool)
    is_scored_SL[:, -1] = False
    return EncodedTexts(ids_SL, is_scored_SL)


def _trainable_layer(language_model: LanguageModel, run: Run) -> SparseLayer:
    layer = run.layer
    if not isinstance(layer, MxD):
        raise UserError(
            f"Run '{run.name}' is a {run.config.method}. Privacy fine-tuning trains C and the gate of MxDs; name MxDs."
        )
    trained = copy.deepcopy(layer).to(language_model.device_of(run.config.layer)).eval()
    for name, parameter in trained.named_parameters():
        parameter.requires_grad_(name == SCALINGS or name.startswith(GATE))
    return trained
