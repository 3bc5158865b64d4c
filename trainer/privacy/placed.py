"""MxDs in place of their MLPs, of which C and the gate alone can move; no other weight of them or around them does.

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

from trainer.errors import UserError
from trainer.gate_config import FITTED
from trainer.language_model import LanguageModel
from trainer.layers.mxd import MxD
from trainer.layers.sparse import SparseLayer
from trainer.privacy.passages import Encoded
from trainer.run import Run

TEXTS_AT_ONCE = 8
"""What is kept for the way back grows with them, and with the vocabulary."""
GATE = "gate."
SCALINGS = "scaling_NO"

Loss = Callable[[Tensor, Tensor], Tensor]
"""From logits [P, V] and the tokens that came next [P] to a loss each [P]."""


def next_token(logits_PV: Tensor, next_P: Tensor) -> Tensor:
    """The next-token loss in nats, [P]."""
    return F.cross_entropy(logits_PV, next_P, reduction="none")


@dataclass(frozen=True)
class Placed:
    """Layers in their places."""

    language_model: LanguageModel
    layers: Mapping[int, SparseLayer]
    """By the index of the block whose MLP each stands for."""

    @classmethod
    def of(cls, language_model: LanguageModel, runs: Sequence[Run]) -> Self:
        """Copies of the runs' layers.

        Raises:
            UserError: one is no MxD with a gate as it was fitted.
        """
        return cls(language_model, {run.config.layer: _movable(language_model, run) for run in runs})

    def copied(self) -> Placed:
        """The same with layers of its own."""
        return Placed(self.language_model, copy.deepcopy(dict(self.layers)))

    def moved(self) -> list[nn.Parameter]:
        """C and the gate of every layer, in a fixed order."""
        return [
            parameter for layer in self.layers.values() for parameter in layer.parameters() if parameter.requires_grad
        ]

    def take(self, values: Sequence[Tensor]) -> None:
        """Put values into ``moved``."""
        with torch.no_grad():
            for parameter, value in zip(self.moved(), values, strict=True):
                parameter.copy_(value)

    def values(self) -> list[Tensor]:
        """What is in ``moved`` now, to be kept."""
        return [parameter.detach().clone() for parameter in self.moved()]

    def predictions(self, texts: Encoded) -> Iterator[tuple[Tensor, Tensor]]:
        """Logits [P, V] where they count and the tokens that came next [P], some texts at a time."""
        for place in range(0, len(texts), TEXTS_AT_ONCE):
            some = texts.some(slice(place, place + TEXTS_AT_ONCE))
            ids_ST = some.ids_ST.to(self.language_model.device)
            is_meant_ST = some.is_meant_ST.to(ids_ST.device)
            with self.language_model.replace(self.layers):
                logits_STV = self.language_model.module(input_ids=ids_ST, use_cache=False).logits
            yield logits_STV[is_meant_ST].float(), ids_ST.roll(-1, 1)[is_meant_ST]

    def gradient(self, texts: Encoded, loss: Loss, weight: float) -> tuple[float, list[Tensor]]:
        """The mean of a loss over all predictions that count, and the gradient of ``weight`` times it."""
        moved, total = self.moved(), texts.predictions
        value, gradient = 0.0, [torch.zeros_like(parameter) for parameter in moved]
        with torch.enable_grad():
            for logits_PV, next_P in self.predictions(texts):
                share = loss(logits_PV, next_P).sum() / total
                for sum_, part in zip(gradient, torch.autograd.grad(weight * share, moved), strict=True):
                    sum_ += part
                value += share.item()
        return value, gradient


def whole(ids_SL: Tensor) -> Encoded:
    """Sequences of equal length of which every prediction counts."""
    is_meant_SL = torch.ones_like(ids_SL, dtype=torch.bool)
    is_meant_SL[:, -1] = False
    return Encoded(ids_SL, is_meant_SL)


def _movable(language_model: LanguageModel, run: Run) -> SparseLayer:
    layer = run.layer
    if not isinstance(layer, MxD):
        raise UserError(
            f"{run.name} is a {run.config.method}; C and the gate of an MxD are moved, so name one of these."
        )
    if layer.config.gate.gate not in FITTED:
        raise UserError(f"{run.name} finds its experts by an index over another's gate; protect that run instead.")
    mine = copy.deepcopy(layer).to(language_model.device_of(run.config.layer)).eval()
    for name, parameter in mine.named_parameters():
        parameter.requires_grad_(name == SCALINGS or name.startswith(GATE))
    return mine
