"""What is expected after a text, with the edits and without: alternatives, and how far the two are apart.

Shapes: B rows, R texts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.nn import functional as F

from trainer.generation import Step
from trainer.language_model import LanguageModel
from trainer.routing import single_texts

ALTERNATIVES = 5


class Alternative(NamedTuple):
    """A token that could have come next."""

    id: int
    text: str
    probability: float


class Compared(NamedTuple):
    """What is expected after a text, as its arm has it and as the other has it."""

    log_probability: float
    """Of the token that was taken, in nats."""
    other_log_probability: float
    kl: float
    """From the text's own distribution to the other's, in nats."""
    alternatives: tuple[Alternative, ...]
    other_alternatives: tuple[Alternative, ...]


def compare(
    step: Step, own: Sequence[int], other: Sequence[int], chosen: Sequence[int], language_model: LanguageModel
) -> list[Compared]:
    """Compare the rows of some texts in a step, all at once.

    Args:
        own: for each text the row that it is written from.
        other: for each the row of the other arm.
        chosen: for each the token that was taken.
    """
    own_RV, other_RV = step.log_p_BV[own], step.log_p_BV[other]
    ids_R1 = torch.tensor(chosen, device=own_RV.device).unsqueeze(1)
    kl_R = F.kl_div(other_RV, own_RV, log_target=True, reduction="none").sum(dim=-1).clamp_min(0)
    numbers = torch.stack([own_RV.gather(1, ids_R1)[:, 0], other_RV.gather(1, ids_R1)[:, 0], kl_R], dim=1).tolist()
    unique = sorted({*own, *other})
    top = step.log_p_BV[unique].topk(min(ALTERNATIVES, own_RV.shape[1]), dim=-1)
    ids_of: list[list[int]] = top.indices.tolist()
    texts = single_texts(language_model, {token for ids in ids_of for token in ids})
    found = {
        row: tuple(Alternative(token, texts[token], p) for token, p in zip(ids, probabilities, strict=True))
        for row, ids, probabilities in zip(unique, ids_of, top.values.exp().tolist(), strict=True)
    }
    return [Compared(p, q, kl, found[a], found[b]) for (p, q, kl), a, b in zip(numbers, own, other, strict=True)]
