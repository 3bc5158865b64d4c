"""What the language model expects after each token of a text, as it is and with a layer in place of an MLP.

Shapes: R rows, T tokens, I input width, V vocabulary, P most probable tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from trainer.language_model import LanguageModel, replacement
from trainer.routing import single_texts, text_ids
from trainer.run import Run
from trainer.stand_ins import Mlp, StandIn

PREDICTIONS = 6
"""Most probable next tokens taken from each arm."""
KL_TOKENS = 16
"""Tokens whose distributions are compared at a time."""
BLOCK = 64
"""Tokens of the vocabulary whose largest value is found at a time."""


class Prediction(NamedTuple):
    """A next token and its probability with the original MLP and with the layer in its place."""

    id: int
    text: str
    original: float
    replaced: float


@dataclass(frozen=True)
class PredictedToken:
    """What is expected after one token of the text."""

    kl: float
    """KL from the original next-token distribution to that with the layer in place of the MLP, in nats."""
    predictions: tuple[Prediction, ...]
    """Most probable first, by the original."""


@dataclass(frozen=True)
class Predictions:
    """What is expected after each token of a text, as one run changes it."""

    run: str
    tokens: tuple[PredictedToken, ...]


@torch.inference_mode()
def predict(language_model: LanguageModel, run: Run, text: str, k: int | None = None) -> Predictions:
    """Next-token predictions of a text with the original MLP and with the run's layer in its place, in one pass.

    Args:
        k: experts of each token that are let through, the strongest first; by default the run's K.

    Raises:
        TooLongError: the text is longer than the language model takes.
        UserError: the text is empty, or the run was fitted to another language model, or has no such K.
    """
    ids = text_ids(language_model, [run], text)
    block, layer = run.config.layer, run.at_k(k).to(language_model.device_of(run.config.layer))
    rows = 1 if language_model.splits(block) else 2
    answers = replacement(block, layer)
    with language_model.stand_in({at: partial(_original_and_replaced, answer) for at, answer in answers.items()}):
        logits_2TV = language_model.logits(torch.tensor([ids] * rows))
    original_TV, replaced_TV = logits_2TV.log_softmax(dim=-1)
    parts = zip(
        divergence(original_TV, replaced_TV).tolist(),
        _most_probable(language_model, original_TV, replaced_TV),
        strict=True,
    )
    return Predictions(run.name, tuple(PredictedToken(*part) for part in parts))


def _original_and_replaced(answer: StandIn, x_RTI: Tensor, mlp: Mlp) -> Tensor:
    """One row for each. Both hold the same up to the first layer that is written: there one is read where the language
    model lets it become two, or two are."""
    return torch.stack([mlp()[0], answer(x_RTI[-1:], mlp)[0]])


def divergence(original_TV: Tensor, replaced_TV: Tensor) -> Tensor:
    """KL [T] in nats from original next-token distributions to others, both as log-probabilities."""
    kl_T = torch.empty(len(original_TV), device=original_TV.device)
    for place in range(0, len(kl_T), KL_TOKENS):  # a block of tokens at a time stays in the processor's cache
        here = slice(place, place + KL_TOKENS)
        change_CV = original_TV[here] - replaced_TV[here]
        kl_T[here] = change_CV.mul_(original_TV[here].exp()).sum(dim=-1)
    return kl_T.clamp_min_(0)


def largest(values_TV: Tensor, count: int) -> Tensor:
    """Ids [T, count] of the largest values, as ``topk`` has them: found among the blocks with the largest maxima."""
    width = values_TV.shape[1]
    blocks = width // BLOCK
    if blocks <= count:
        return values_TV.topk(min(count, width), dim=1).indices
    head_TNB = values_TV[:, : blocks * BLOCK].view(len(values_TV), blocks, BLOCK)
    best_TP = head_TNB.amax(dim=2).topk(count, dim=1).indices
    ids_TC = (best_TP.unsqueeze(2) * BLOCK + torch.arange(BLOCK, device=values_TV.device)).flatten(1)
    rest_R = torch.arange(blocks * BLOCK, width, device=values_TV.device)
    ids_TC = torch.cat([ids_TC, rest_R.expand(len(values_TV), -1)], dim=1)
    return ids_TC.gather(1, values_TV.gather(1, ids_TC).topk(count, dim=1).indices)


def _most_probable(
    language_model: LanguageModel, original_TV: Tensor, replaced_TV: Tensor
) -> list[tuple[Prediction, ...]]:
    """For each token the most probable next ones of either arm."""
    ids_TP = torch.cat([largest(values, PREDICTIONS) for values in (original_TV, replaced_TV)], dim=1)
    rows = zip(
        ids_TP.tolist(),
        original_TV.gather(1, ids_TP).exp().tolist(),
        replaced_TV.gather(1, ids_TP).exp().tolist(),
        strict=True,
    )
    unique = [{token: (a, b) for token, a, b in zip(*row, strict=True)} for row in rows]
    texts = single_texts(language_model, {token for row in unique for token in row})
    return [
        tuple(
            Prediction(token, texts[token], *probabilities)
            for token, probabilities in sorted(row.items(), key=lambda item: -item[1][0])
        )
        for row in unique
    ]
