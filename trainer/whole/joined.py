"""Layers in place of their MLPs, all at once, and one step of them towards the untouched language model.

The loss is on what the language model says at its end, so the gradient of an early layer has come through all later
ones: each learns to answer what the others make of the text, not what the MLPs made of it.

Shapes: B sequences, T tokens of a sequence, V vocabulary, I input width, O output width, N experts, K active.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.fitting import Fit
from trainer.language_model import LanguageModel
from trainer.layers.sparse import Routing
from trainer.metrics import normalised_mse
from trainer.stand_ins import Mlp

SEQUENCES_AT_ONCE = 8
"""Of a step: what is kept for the way back grows with them, and with the vocabulary. Gradients are summed over them."""


class Losses(NamedTuple):
    """Means over tokens, in nats; one element each, not yet waited for."""

    kl: Tensor
    """Divergence of the untouched language model's next-token distribution from the one with all layers in place."""
    next_token: Tensor
    """Loss of the latter."""


class _Answered(NamedTuple):
    """What one layer did on a part of a step."""

    routing: Routing
    error: Tensor
    """Normalised MSE against the MLP, on the input that came through the layers before; its share of the step's."""


class Joined:
    """Layers that stand in together, each with its optimiser."""

    def __init__(self, language_model: LanguageModel, fits: Sequence[Fit], next_token_weight: float) -> None:
        self.language_model = language_model
        self.fits = {fit.config.layer: fit for fit in fits}
        self.next_token_weight = next_token_weight
        self._answered: dict[int, list[_Answered]] = {}

    def step(self, ids_BT: Tensor) -> Losses:
        """Take one step of every layer on some sequences."""
        for fit in self.fits.values():
            fit.optimizer.zero_grad()
        self._answered = {layer: [] for layer in self.fits}
        losses = [self._backward(part, len(part) / len(ids_BT)) for part in ids_BT.split(SEQUENCES_AT_ONCE)]
        for layer, fit in self.fits.items():
            routings, errors = zip(*self._answered[layer], strict=True)
            fit.descend(Routing(*map(torch.cat, zip(*routings, strict=True))), torch.stack(errors).sum())
        return Losses(*(torch.stack(values).sum() for values in zip(*losses, strict=True)))

    def _backward(self, ids_BT: Tensor, share: float) -> Losses:
        """Add the gradient of a part of a step; its losses, times its share of the step."""
        wanted_BTV = self.language_model.logits(ids_BT).log_softmax(-1)
        stand_ins = {layer: partial(self._answer, layer, share) for layer in self.fits}
        with self.language_model.stand_in(stand_ins), torch.enable_grad():
            ids_BT = ids_BT.to(self.language_model.device)
            logits_BTV = self.language_model.module(input_ids=ids_BT, use_cache=False).logits.float()
            found_BTV = logits_BTV.log_softmax(-1)
            kl = F.kl_div(found_BTV, wanted_BTV, reduction="none", log_target=True).sum(-1).mean()
            next_token = F.nll_loss(found_BTV[:, :-1].flatten(0, 1), ids_BT[:, 1:].flatten())
            (share * (kl + self.next_token_weight * next_token)).backward()
        return Losses(share * kl.detach(), share * next_token.detach())

    def _answer(self, layer: int, share: float, x_BTI: Tensor, mlp: Mlp) -> Tensor:
        """A layer's answer, with its way back; what the MLP would have answered is only compared with."""
        sparse = self.fits[layer].layer
        is_read = sparse.reads == "mlp-output"
        with torch.set_grad_enabled(is_read):
            target_TO = mlp().flatten(0, 1).float()
        output = sparse(target_TO if is_read else x_BTI.flatten(0, 1).float())
        error = share * normalised_mse(output.output_TO.detach(), target_TO.detach())
        self._answered[layer].append(_Answered(Routing(*(it.detach() for it in output.routing)), error))
        answer_BTO: Tensor = output.output_TO.to(x_BTI.dtype).unflatten(0, x_BTI.shape[:-1])
        return answer_BTO
