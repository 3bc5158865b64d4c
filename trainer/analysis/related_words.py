"""Words that a language model expects after a description, such as the names of the weekdays after “days of the week”.

A search in plain words needs no other model: the language model continues a few sentences about the description, and
experts that fire on the words which it expects are found.

Shapes: V vocabulary.
"""

from __future__ import annotations

import torch

from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids

SENTENCES = ("Examples of {}:", "{}, for example,", "Here is a list of {}: 1.", "A word about {}:")
MIN_LETTERS = 3
"""Shorter tokens are rarely words."""
MAX_CANDIDATES = 200


@torch.no_grad()
def related_words(language_model: LanguageModel, text: str, start_token: str | None) -> dict[str, float]:
    """Return words, in lower case and most probable first, with their probability as the next token.

    Args:
        text: a description in plain words.
        start_token: start token of the sequences that the run was trained on.

    Raises:
        TooLongError: the text is longer than the language model's context.
    """
    rows = [prompt_ids(language_model, each.format(text), start_token=start_token) for each in SENTENCES]
    last_RW = torch.stack([language_model.residual(torch.tensor([ids]))[0, -1] for ids in rows])
    probability_V = language_model.unembed(last_RW).softmax(dim=-1).mean(dim=0)
    top = probability_V.topk(min(MAX_CANDIDATES, len(probability_V)))
    words: dict[str, float] = {}
    for token, probability in zip(top.indices.tolist(), top.values.tolist(), strict=True):
        text_of_token = language_model.tokenizer.decode([token])
        assert isinstance(text_of_token, str)
        word = text_of_token.strip().casefold()
        if len(word) >= MIN_LETTERS and word.isalpha():
            words[word] = words.get(word, 0.0) + probability
    return words
