"""Whether the language model goes on as it would have: greedy continuations with and without the replacement.

Shapes: P prompts, L tokens.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from trainer.language_model import LanguageModel
from trainer.layers.sparse import SparseLayer

LENGTHS = (1, 2, 4, 8, 16, 32)
"""Of the beginnings that are compared, in tokens."""


def agreement(
    language_model: LanguageModel, layers: Mapping[int, SparseLayer], ids_SL: Tensor, prompts: int
) -> dict[int, float]:
    """Share of prompts whose greedy continuations begin with the same n tokens, by n.

    The prompts are the first halves of the first sequences, so what is compared was never asked for by the text.
    """
    prompts_PL = ids_SL[:prompts, : ids_SL.shape[1] // 2].to(language_model.device)
    if not len(prompts_PL):
        return {}
    room = language_model.max_tokens - prompts_PL.shape[1]
    lengths = [length for length in LENGTHS if length <= room]
    if not lengths:
        return {}
    original_PL = _continued(language_model, prompts_PL, lengths[-1])
    with language_model.replace(layers):
        replaced_PL = _continued(language_model, prompts_PL, lengths[-1])
    same_PL = (original_PL == replaced_PL).cumprod(dim=1).float()
    return {length: same_PL[:, length - 1].mean().item() for length in lengths}


@torch.no_grad()
def _continued(language_model: LanguageModel, prompts_PL: Tensor, tokens: int) -> Tensor:
    """The most probable next tokens, [P, tokens]; special tokens count like any other."""
    module = language_model.module
    cache, ids_PL, made = None, prompts_PL, []
    for _ in range(tokens):
        answer = module(input_ids=ids_PL, past_key_values=cache, use_cache=True)
        cache, ids_PL = answer.past_key_values, answer.logits[:, -1].argmax(-1, keepdim=True)
        made.append(ids_PL)
    return torch.cat(made, dim=1)
