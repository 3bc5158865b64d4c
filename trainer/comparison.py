"""The next tokens of all texts in a step: chosen, and compared with what the other arm expects after the same text.

Everything is done for all texts at once, however many requests they belong to: a step has dozens of rows at most, and
its cost is that of starting an operation, not of the operation.

Shapes: B rows, R texts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from trainer.config import Sampling
from trainer.language_model import LanguageModel
from trainer.routing import single_texts
from trainer.sampling import choose, gumbel_noises

ALTERNATIVES = 5


class Wanted(NamedTuple):
    """A text whose next token is to be chosen."""

    own: int
    """Place of the row that it is written from."""
    other: int
    """Place of the row that holds the same text as the other arm reads it."""
    ids: Sequence[int]
    sampling: Sampling
    seed: int
    position: int
    """Of the token, 0 for the first new one; with the seed it decides the noise, which both arms share."""


class Alternative(NamedTuple):
    """A token that could have come next."""

    id: int
    text: str
    probability: float


class Compared(NamedTuple):
    """The token that was chosen after a text, and what its arm and the other expect there."""

    chosen: int
    log_probability: float
    """Of the chosen token, in nats."""
    other_log_probability: float
    kl: float
    """From the text's own distribution to the other's, in nats."""
    alternatives: tuple[Alternative, ...]
    other_alternatives: tuple[Alternative, ...]


def choose_and_compare(
    logits_BV: Tensor, log_p_BV: Tensor, wanted: Sequence[Wanted], language_model: LanguageModel
) -> list[Compared]:
    """Choose a token of each text, and compare there.

    Args:
        logits_BV: of all rows.
        log_p_BV: the same as log-probabilities.
    """
    own, other = [it.own for it in wanted], [it.other for it in wanted]
    chosen = _choose(logits_BV[own], wanted)
    own_R, other_R, ids_R = torch.tensor([own, other, chosen], device=log_p_BV.device)
    own_RV, other_RV = log_p_BV[own_R], log_p_BV[other_R]
    kl_R = (own_RV - other_RV).mul_(own_RV.exp_()).sum(dim=-1)
    numbers = torch.stack([log_p_BV[own_R, ids_R], log_p_BV[other_R, ids_R], kl_R], dim=1).tolist()
    likely = _alternatives(log_p_BV, {*own, *other}, language_model)
    return [
        Compared(token, p, q, max(0.0, kl), likely[it.own], likely[it.other])
        for token, (p, q, kl), it in zip(chosen, numbers, wanted, strict=True)
    ]


def _choose(logits_RV: Tensor, wanted: Sequence[Wanted]) -> list[int]:
    vocabulary = logits_RV.shape[-1]
    # Both arms of a request share theirs.
    place = {key: number for number, key in enumerate(dict.fromkeys((it.seed, it.position) for it in wanted))}
    noise_RV = gumbel_noises(list(place), vocabulary)[[place[it.seed, it.position] for it in wanted]]
    return choose(logits_RV, [set(it.ids) for it in wanted], [it.sampling for it in wanted], noise_RV)


def _alternatives(
    log_p_BV: Tensor, rows: set[int], language_model: LanguageModel
) -> Mapping[int, tuple[Alternative, ...]]:
    """Row -> its most probable tokens."""
    top = log_p_BV.topk(min(ALTERNATIVES, log_p_BV.shape[1]), dim=-1)
    ids, probabilities = top.indices.tolist(), top.values.exp().tolist()
    texts = single_texts(language_model, {token for row in rows for token in ids[row]})
    return {
        row: tuple(Alternative(token, texts[token], p) for token, p in zip(ids[row], probabilities[row], strict=True))
        for row in rows
    }
