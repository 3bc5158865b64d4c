"""Words related to a description, by the language model itself: a search in plain words needs no other model.

Shapes: W words that are one token, D model width, C common directions, V vocabulary size.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from mxd.trainer.config.analysis import FUNCTION_WORDS
from mxd.trainer.language_model.tokenizer import prompt_ids, vocabulary_size

if TYPE_CHECKING:
    from mxd.trainer.language_model.model import LanguageModel

DESCRIPTIONS = ("Examples of {}:", "Here is a list of {}: 1.", "A word about {}:")
"""Beginnings of texts that a language model continues with words related to a description."""
MIN_LETTERS = 3
"""Shorter tokens are rarely words."""
MAX_CANDIDATES = 200
"""Number of most probable tokens that can be related words."""
UNRELATED = (
    "time", "water", "people", "a car", "the sky", "a book", "war", "numbers", "school", "trees", "law", "sleep",
    "colour", "a company", "a game", "a city", "love", "software", "science", "a painting",
)  # fmt: skip
"""Diverse descriptions. What a language model expects after most of them is related to none."""
MIN_LIFT = 3.0
"""Nats by which a description must raise the log-probability of a related word, a factor of 20."""
MIN_COSINE = 0.1
"""Expected tokens whose embedding is less similar are mostly beginnings of words, such as “ant” of “antibiotics”."""
SIMILAR = 0.25
"""Cosine of embeddings from which a word is related without being expected, such as “rage” and “anger”."""
COMMON_DIRECTIONS = 4
"""First principal components of the embeddings. They encode frequency, and make all common words similar."""
WORD_MARKS = ("Ġ", "▁")
"""Marks of tokenizers for the space at the beginning of a word."""
REMEMBERED = 64
"""Descriptions whose related words are kept."""
PART = 8192
"""Words whose embeddings are in memory at a time."""


class WordTable(NamedTuple):
    """Words that are one token with a space before it."""

    words: tuple[str, ...]
    """In lower case; some occur twice, as “Anger” and “anger”."""
    ids_W: Tensor
    mean_D: Tensor
    common_DC: Tensor
    norm_W: Tensor
    """Norm of each embedding without its mean and its common directions."""


class RelatedWords:
    """Words that a description makes a language model expect, and words with similar embeddings."""

    def __init__(self, language_model: LanguageModel) -> None:
        self._language_model = language_model
        self._expected: dict[str | None, Tensor] = {}
        """Start token -> mean log-probability of each token after unrelated descriptions, [V]."""
        self._remembered = lru_cache(REMEMBERED)(self._compute)

    def of(self, text: str, start_token: str | None) -> dict[str, float]:
        """Return words in lower case with their relation to a description, from 0 to 1, strongest first. The
        description is plain words, such as “days of the week”. Raises TooLongError if the text is longer than the
        language model's context."""
        return dict(self._remembered(text, start_token))

    @torch.no_grad()
    def _compute(self, text: str, start_token: str | None) -> Mapping[str, float]:
        expected = self._expected_after(text, start_token)
        described = [word for word in re.findall(r"\w+", text.casefold()) if word not in FUNCTION_WORDS]
        cosine = self._similar_to(described)
        expected = {word: relation for word, relation in expected.items() if cosine.get(word, 1.0) >= MIN_COSINE}
        largest = max(expected.values(), default=1.0)
        related = {word: each / len(described) for word, each in cosine.items() if each >= SIMILAR}
        for word, relation in expected.items():
            related[word] = max(related.get(word, 0.0), (relation / largest) ** 0.5)
        # Few of the words of a kind are expected first: “Friday” is related because it is similar to “Monday”.
        similar = self._similar_to([max(expected, key=lambda word: expected[word])]) if expected else {}
        related = {word: max(relation, similar.get(word, 0.0)) for word, relation in related.items()}
        return dict(sorted(related.items(), key=lambda entry: -entry[1]))

    def _expected_after(self, text: str, start_token: str | None) -> Mapping[str, float]:
        """Return word -> probability as the next token after a description, times its lift. Words are compared with
        what is expected after ``UNRELATED`` descriptions, by pointwise mutual information. Else “might” and “while”
        would be related to everything."""
        if start_token not in self._expected:
            unrelated = self._after_descriptions(UNRELATED, start_token)
            self._expected[start_token] = unrelated.clamp_min(1e-12).log().mean(dim=0)
        (probability_V,) = self._after_descriptions([text], start_token)
        top = probability_V.topk(min(MAX_CANDIDATES, len(probability_V)))
        lifts = (top.values.log() - self._expected[start_token][top.indices]).tolist()
        words: defaultdict[str, float] = defaultdict(float)  # several tokens may be one word
        for token, probability, lift in zip(top.indices.tolist(), top.values.tolist(), lifts, strict=True):
            word = self._word(token)
            if lift > MIN_LIFT and word is not None:
                words[word] += probability * lift
        return words

    def _after_descriptions(self, texts: Sequence[str], start_token: str | None) -> Tensor:
        """Probabilities [texts, V] of the next token, mean over the ``DESCRIPTIONS`` of each text."""
        language_model = self._language_model
        beginnings = [each.format(text) for text in texts for each in DESCRIPTIONS]
        rows = [prompt_ids(language_model, beginning, start_token=start_token) for beginning in beginnings]
        width = max(map(len, rows))
        ids_RT = torch.tensor([ids + [0] * (width - len(ids)) for ids in rows])  # no token reads what follows it
        last_RD = language_model.residual(ids_RT)[torch.arange(len(rows)), torch.tensor([len(ids) - 1 for ids in rows])]
        probability_RV = language_model.unembed(last_RD).float().softmax(dim=-1)
        return probability_RV.view(len(texts), len(DESCRIPTIONS), -1).mean(dim=1)

    def _similar_to(self, described: Sequence[str]) -> dict[str, float]:
        """Return word -> largest cosine of its embedding with that of one of the ``described`` words. Mean and common
        directions are removed from embeddings, as in All-but-the-Top (arXiv 1702.01417, algorithm 1)."""
        table = self._table
        directions: list[Tensor] = []
        for word in described if table.words else ():
            ids = table.ids_W[[index for index, each in enumerate(table.words) if each == word]]
            if not len(ids):
                ids = torch.tensor(self._language_model.tokenizer(f" {word}", add_special_tokens=False)["input_ids"])
            if len(ids):  # some tokenizers drop what they do not know
                directions.append(self._centred(ids, table).mean(dim=0))
        if not directions:
            return {}
        directions_DN = torch.stack(directions, dim=1)
        directions_DN = directions_DN / directions_DN.norm(dim=0).clamp_min(1e-12)
        # Directions are orthogonal to the common ones, so only the mean has to be removed from the embeddings.
        parts = [(self._embeddings(part) - table.mean_D) @ directions_DN for part in table.ids_W.split(PART)]
        cosine_WN = torch.cat(parts) / table.norm_W[:, None]
        cosine: dict[str, float] = {}
        for word, similarity in zip(table.words, cosine_WN.amax(dim=1).tolist(), strict=True):
            cosine[word] = max(cosine.get(word, -1.0), similarity)
        return cosine

    def _centred(self, ids_W: Tensor, table: WordTable) -> Tensor:
        embedding_WD = self._embeddings(ids_W) - table.mean_D
        return embedding_WD - embedding_WD @ table.common_DC @ table.common_DC.T

    def _embeddings(self, ids_W: Tensor) -> Tensor:
        ids_W1 = self._language_model.on_device(ids_W[:, None])  # sequences of one token: any number of them fits
        embedded: Tensor = self._language_model.module.get_input_embeddings()(ids_W1)
        return embedded.squeeze(1).float()

    def _word(self, token: int) -> str | None:
        decoded = self._language_model.tokenizer.decode([token])
        assert isinstance(decoded, str)
        word = decoded.strip().casefold()
        return word if len(word) >= MIN_LETTERS and word.isalpha() else None

    @cached_property
    def _table(self) -> WordTable:
        tokenizer = self._language_model.tokenizer
        names = tokenizer.convert_ids_to_tokens(list(range(vocabulary_size(tokenizer))))
        words = {id: self._word(id) for id, name in enumerate(names) if name and name.startswith(WORD_MARKS)}
        words = {id: word for id, word in words.items() if word is not None}
        ids_W = torch.tensor(list(words), dtype=torch.int64)
        empty = WordTable((), ids_W, *(torch.zeros(0) for _ in range(3)))
        if len(ids_W) <= COMMON_DIRECTIONS:
            return empty
        sample_WD = self._embeddings(ids_W[:: len(ids_W) // PART + 1])
        mean_D = sample_WD.mean(dim=0)
        sample_WD = sample_WD - mean_D
        common_DC = sample_WD[:COMMON_DIRECTIONS].T
        for _ in range(20):  # subspace iteration
            common_DC, _ = torch.linalg.qr(sample_WD.T @ (sample_WD @ common_DC))
        table = WordTable(tuple(map(str, words.values())), ids_W, mean_D, common_DC, torch.zeros(0))
        norms = [self._centred(part, table).norm(dim=1) for part in ids_W.split(PART)]
        return table._replace(norm_W=torch.cat(norms).clamp_min(1e-12))
