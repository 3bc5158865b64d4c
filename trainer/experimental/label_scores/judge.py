"""A local language model as a judge: log-odds of " yes" against " no", and embeddings of texts.

No text is generated, so no answer has to be parsed. The log-odds are compared between texts of one label only, because
a small language model prefers one of the two answers whatever it is asked.

Shapes: P prompts, B prompts of a batch, T tokens of the longest, W width of the residual stream, V vocabulary size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.prompts import prompt_ids

Floats = NDArray[np.float64]
BATCH = 16
ANSWERS = (" yes", " no")

DETECTION = "Description: {label}\nText: {text}\nDoes the text contain a word that fits the description, yes or no?"
FUZZING = "Description: {label}\nText: {text}\nDoes the word between « and » fit the description, yes or no?"
MAX_CACHED = 1000
"""Embeddings that are kept, because an expert's texts are compared with several labels."""


class LocalJudge:
    """Scores of texts by a causal language model."""

    def __init__(self, language_model: LanguageModel) -> None:
        """Find the tokens in which the two answers differ."""
        self._language_model = language_model
        yes, no = (language_model.tokenizer(answer, add_special_tokens=False)["input_ids"] for answer in ANSWERS)
        # Some tokenizers begin both answers with the same token, a space.
        common = next(place for place, pair in enumerate(zip(yes, no, strict=False)) if pair[0] != pair[1])
        self._lead: list[int] = yes[:common]
        self._yes, self._no = yes[common], no[common]
        self._embedded: dict[str, Floats] = {}

    @property
    def name(self) -> str:
        """Name of the language model."""
        return self._language_model.source

    def log_odds(self, prompts: Sequence[str]) -> Floats:
        """Log-odds of yes against no as the next token of each prompt, [P], in nats.

        Raises:
            TooLongError: a prompt exceeds the language model's context length.
        """
        parts = [self._batch_log_odds(*batch) for batch in self._batches(prompts, self._lead)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def embeddings(self, texts: Sequence[str]) -> Floats:
        """Mean of the residual stream after the last block over the tokens of each text, [P, W].

        This is no trained sentence embedding; it is what a causal language model offers without another package.
        """
        if len(self._embedded) > MAX_CACHED:
            self._embedded.clear()
        missing = [text for text in dict.fromkeys(texts) if text not in self._embedded]
        for batch, rows in zip(self._batches(missing, []), _split(missing), strict=True):
            self._embedded.update(zip(rows, self._batch_embeddings(*batch), strict=True))
        return np.stack([self._embedded[text] for text in texts])

    @torch.no_grad()
    def _batch_log_odds(self, ids_BT: Tensor, lengths_B: Tensor) -> Floats:
        residual_BTW = self._language_model.residual(ids_BT)
        rows_B = torch.arange(len(ids_BT), device=residual_BTW.device)
        last_BW = residual_BTW[rows_B, lengths_B.to(residual_BTW.device) - 1]
        logits_BV = self._language_model.unembed(last_BW)
        odds_B: Floats = (logits_BV[:, self._yes] - logits_BV[:, self._no]).double().cpu().numpy()
        return odds_B

    @torch.no_grad()
    def _batch_embeddings(self, ids_BT: Tensor, lengths_B: Tensor) -> Floats:
        residual_BTW = self._language_model.residual(ids_BT).double().cpu()
        place_T = torch.arange(ids_BT.shape[1])
        # The start token has a residual of unusual norm, the same in every text.
        counts_BT = (place_T > 0) & (place_T < lengths_B[:, None])
        summed_BW = (residual_BTW * counts_BT[:, :, None]).sum(1)
        mean_BW: Floats = (summed_BW / counts_BT.sum(1, keepdim=True).clamp_min(1)).numpy()
        return mean_BW

    def _batches(self, prompts: Sequence[str], ending: list[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """Token ids of a batch, padded at the end, where no token of a prompt attends to the padding; and lengths."""
        for part in _split(prompts):
            rows = [torch.tensor(prompt_ids(self._language_model, prompt) + ending) for prompt in part]
            lengths_B = torch.tensor([len(row) for row in rows])
            yield torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), lengths_B


def _split(texts: Sequence[str]) -> list[Sequence[str]]:
    return [texts[first : first + BATCH] for first in range(0, len(texts), BATCH)]
