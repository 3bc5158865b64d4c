"""How sure each token of a text is, with some runs in place and with others.

Shapes: T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.in_place import refuse_apart
from trainer.language_model import LanguageModel
from trainer.routing import prompt_ids, single_texts
from trainer.run import Run
from trainer.tokens import token_texts


@dataclass(frozen=True)
class Expected:
    """What was expected where a token came."""

    probability: float
    """Of the token that came."""
    entropy: float
    """As a share of ln V; 1 where all tokens are as likely."""
    likely: str
    """The most probable token."""
    likely_probability: float


@dataclass(frozen=True)
class SureToken:
    """A token of the text."""

    text: str
    before: Expected
    after: Expected


@torch.inference_mode()
def by_token(language_model: LanguageModel, before: Sequence[Run], after: Sequence[Run], text: str) -> list[SureToken]:
    """Every token of a text behind the start token, as it was expected with each set of runs in place.

    Raises:
        TooLongError: the text is longer than the language model takes.
        UserError: the runs cannot be in place together.
    """
    for runs in (before, after):
        refuse_apart(runs)
    ids = prompt_ids(language_model, text)
    found = [_expected(language_model, runs, ids) for runs in (before, after)]
    return [SureToken(*token) for token in zip(token_texts(language_model.tokenizer, ids)[1:], *found, strict=True)]


def _expected(language_model: LanguageModel, runs: Sequence[Run], ids: list[int]) -> list[Expected]:
    layers = {run.config.layer: run.layer.to(language_model.device_of(run.config.layer)) for run in runs}
    with language_model.replace(layers):
        p_TV: Tensor = language_model.logits(torch.tensor([ids]))[0, :-1].softmax(-1)
    came_T = torch.tensor(ids[1:], device=p_TV.device)
    entropy_T = torch.special.entr(p_TV).sum(-1) / math.log(p_TV.shape[-1])
    most_T, likely_T = p_TV.max(-1)
    texts = single_texts(language_model, set(likely_T.tolist()))
    columns = (p_TV.gather(1, came_T.unsqueeze(1)).squeeze(1), entropy_T, likely_T, most_T)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Expected(probability, entropy, texts[likely], most) for probability, entropy, likely, most in rows]
