"""Counts of experts' activations over the documents of two texts.

The two texts of a contrast: documents from files, cut into sequences of token ids.

Count the active tokens of each expert in each document of a text, and keep its strongest examples.

Shapes: S sequences of a batch, L tokens of the longest, T = S * L, P (document, expert) pairs, N experts.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from mxd.trainer.analysis.contrast.rate_ratios import DocumentCounts, Floats
from mxd.trainer.analysis.contrast.results import ContrastExample, Unit
from mxd.trainer.analysis.indexing.activations import ActivePairs, Ints, active_pairs
from mxd.trainer.analysis.indexing.examples import SelectedExamples, TopExamples
from mxd.trainer.analysis.indexing.statistics import ExpertStatistics
from mxd.trainer.config import ContrastConfig, TextConfig
from mxd.trainer.data.documents import documents
from mxd.trainer.data.labelled import labelled_file, read_labelled
from mxd.trainer.data.readers import Document
from mxd.trainer.errors import UserError
from mxd.trainer.layers.base import Routing
from mxd.trainer.utils.suggestions import suggest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


MIN_DOCUMENTS = 10
"""Documents per text below which sequences are the unit."""
MIN_UNITS = 2


@dataclass(frozen=True)
class NamedText:
    """Documents of a text, and its name in tables."""

    name: str
    documents: Iterable[Document]


def text_of_file(config: TextConfig, seed: int) -> NamedText:
    """Documents of a file, a folder or a Hub dataset, in random order.

    Raises:
        NotFoundError, UserError: as ``documents``.
    """
    return NamedText(config.dataset, documents(config, "shuffled", seed))


def text_of_kind(config: TextConfig, kind: str, kind_column: str, seed: int) -> NamedText:
    """Documents of one kind from a file of labelled texts, in random order.

    Raises:
        NotFoundError: there is no such file.
        UserError: the file lacks a column, or has no text of this kind.
    """
    labelled = list(read_labelled(labelled_file(config.dataset), config.column, kind_column))
    texts = [each.text for each in labelled if each.label == kind]
    if not texts:
        kinds = sorted({each.label for each in labelled})
        raise UserError(
            f"No text of kind '{kind}' in {config.dataset}.{suggest(kind, kinds)} Its kinds: {_listed(kinds)}."
        )
    return NamedText(kind, shuffled(texts, seed))


def shuffled(texts: Sequence[str], seed: int) -> list[str]:
    """Return the texts in random order."""
    return random.Random(seed).sample(texts, len(texts))


def _listed(kinds: Sequence[str]) -> str:
    return ", ".join(kinds[:30]) + (", …" if len(kinds) > 30 else "")


@dataclass(frozen=True)
class TokenizedText:
    """Sequences of a text. Each begins with the start token, which is not counted."""

    name: str
    documents: int
    sequences: tuple[list[int], ...]
    document_of: tuple[int, ...]
    """Index of the document of each sequence."""

    def units(self, unit: Unit) -> list[int]:
        """Index of the unit of each sequence."""
        return list(self.document_of) if unit == "document" else list(range(len(self.sequences)))

    @property
    def tokens(self) -> int:
        """Number of tokens without start tokens."""
        return sum(map(len, self.sequences)) - len(self.sequences)


def tokenize_text(
    text: NamedText, tokenizer: PreTrainedTokenizerBase, start_token: int, tokens: int, context_length: int
) -> TokenizedText:
    """Read documents until they have ``tokens`` tokens, and cut them into sequences of at most ``context_length``.

    The last document is cut where the tokens end. Every sequence begins with the start token, because the first token
    of a sequence has unusual activations.

    Raises:
        UserError: as the documents raise during iteration, or they are all empty.
    """
    sequences: list[list[int]] = []
    document_of: list[int] = []
    number, left = 0, tokens
    for document in text.documents:
        ids = _token_ids(document, tokenizer)[:left]
        if not ids:
            continue
        parts = [[start_token, *part] for part in _cut(ids, context_length - 1)]
        sequences += parts
        document_of += [number] * len(parts)
        number, left = number + 1, left - len(ids)
        if not left:
            break
    if not sequences:
        raise UserError(f"Text {text.name} is empty. Give a text with at least one word.")
    return TokenizedText(text.name, number, tuple(sequences), tuple(document_of))


def _token_ids(document: Document, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    if not isinstance(document, str):
        return list(document)
    ids: list[int] = tokenizer(document, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def _cut(ids: Sequence[int], length: int) -> Iterator[Sequence[int]]:
    return (ids[first : first + length] for first in range(0, len(ids), length))


def choose_unit(texts: Sequence[TokenizedText]) -> Unit:
    """Return the unit that is counted as independent.

    Raises:
        UserError: a text is too short for two units.
    """
    if all(text.documents >= MIN_DOCUMENTS for text in texts):
        return "document"
    for text in texts:
        if len(text.sequences) < MIN_UNITS:
            raise UserError(
                f"Text {text.name} is too short: {text.tokens} tokens in one sequence. Give several documents, "
                f"{MIN_DOCUMENTS} or more if possible."
            )
    return "sequence"


TOKENS_BEFORE, TOKENS_AFTER = 24, 40
"""Tokens of an example around its peak."""


class Batch(NamedTuple):
    """Sequences of a text that are routed together."""

    token_ids_SL: Ints
    lengths_S: Ints
    sequence_ids_S: Ints


class _Sums(NamedTuple):
    """Active tokens and summed activations by key, the document times N plus the expert."""

    key_P: Ints
    count_P: Ints
    activation_P: Floats

    def merged(self) -> _Sums:
        """Sum the values of equal keys."""
        keys, inverse_P = np.unique(self.key_P, return_inverse=True)
        counts = np.bincount(inverse_P, self.count_P, len(keys)).astype(np.int64)
        activations: Floats = np.bincount(inverse_P, self.activation_P, len(keys)).astype(np.float64)
        return _Sums(keys, counts, activations)


class TextCounter:
    """One text with the counts and examples of its experts."""

    def __init__(self, text: TokenizedText, units: Sequence[int], num_experts: int, config: ContrastConfig) -> None:
        self.text, self.units = text, np.array(units)
        self.num_experts = num_experts
        # Sequences of similar length share a batch, so that little of it is padding.
        self._order = np.argsort([-len(ids) for ids in text.sequences], kind="stable")
        self._next = 0
        self.tokens_done = 0
        self._parts: list[_Sums] = []
        self._statistics = ExpertStatistics(num_experts)
        self._top = TopExamples(num_experts, max(config.examples, 1), 0, config.seed)
        self._selected: SelectedExamples | None = None
        self._max_examples = config.examples

    @property
    def is_done(self) -> bool:
        """True if the text is routed."""
        return self._next >= len(self._order)

    @property
    def num_units(self) -> int:
        """Number of documents or sequences that are counted as independent."""
        return int(self.units.max()) + 1

    def next_batch(self, count: int) -> Batch:
        """Return the next sequences, padded at the end, where no token of a text attends to the padding."""
        ids_S = self._order[self._next : self._next + count]
        self._next += len(ids_S)
        sequences = [self.text.sequences[number] for number in ids_S]
        lengths_S = np.array([len(ids) for ids in sequences])
        token_ids_SL = np.zeros((len(sequences), lengths_S.max()), np.int64)
        for row, ids in enumerate(sequences):
            token_ids_SL[row, : len(ids)] = ids
        return Batch(token_ids_SL, lengths_S, ids_S)

    def add(self, batch: Batch, routing: Routing) -> None:
        """Count a batch without its padding and start tokens."""
        length = batch.token_ids_SL.shape[1]
        place_L = np.arange(length)
        counts_SL = (place_L > 0) & (place_L < batch.lengths_S[:, None])
        mask_T1 = torch.from_numpy(counts_SL.reshape(-1, 1)).to(routing.coefficients_TK.device)
        masked = Routing(routing.coefficients_TK * mask_T1, routing.indices_TK)
        # The places of the batches in the order are ascending, as the selection of examples needs.
        first = self._next - len(batch.sequence_ids_S)
        pairs, _ = active_pairs(masked, length, first + np.arange(len(batch.sequence_ids_S)))
        self._top.add(pairs, self._statistics, self._statistics.add(pairs))
        if self._top.needs_pruning:
            self._top.prune(self._statistics)
        self._parts.append(self._summed(pairs))
        self.tokens_done += int(counts_SL.sum())

    def _summed(self, pairs: ActivePairs) -> _Sums:
        """Sum the pairs of each expert in each document."""
        unit_P = self.units[self._order[pairs.sequence]].astype(np.int64)
        keys_P: Ints = unit_P * self.num_experts + pairs.expert.astype(np.int64)
        return _Sums(keys_P, np.ones(len(keys_P), np.int64), pairs.coefficient.astype(np.float64)).merged()

    def counts(self) -> DocumentCounts:
        """Return the counts of all documents."""
        lengths = np.array([len(ids) - 1 for ids in self.text.sequences])
        keys, counts, activations = (np.concatenate(fields) for fields in zip(*self._parts, strict=True))
        summed = _Sums(keys, counts, activations).merged()
        return DocumentCounts(
            tokens_D=np.bincount(self.units, lengths).astype(np.int64),
            document_P=summed.key_P // self.num_experts,
            expert_P=summed.key_P % self.num_experts,
            count_P=summed.count_P,
            activation_P=summed.activation_P,
            num_experts=self.num_experts,
        )

    def examples(self, expert: int) -> Iterator[ContrastExample]:
        """Yield the strongest examples of an expert."""
        self._selected = self._selected or self._top.prune(self._statistics)
        first, end = np.searchsorted(self._selected.expert, [expert, expert + 1])
        for index in range(first, min(end, first + self._max_examples)):
            yield self._example(self._selected, index)

    def _example(self, selected: SelectedExamples, index: int) -> ContrastExample:
        sequence = int(self._order[selected.sequence[index]])
        ids, peak = self.text.sequences[sequence], int(selected.position[index])
        first, end = max(1, peak - TOKENS_BEFORE), peak + TOKENS_AFTER + 1
        pairs = self._top.pairs.select(np.arange(selected.start[index], selected.end[index]))
        active = zip(pairs.position.tolist(), pairs.coefficient.tolist(), pairs.rank.tolist(), strict=True)
        return ContrastExample(
            sequence=sequence,
            position=peak - first,
            coefficient=float(selected.coefficient[index]),
            token_ids=tuple(ids[first:end]),
            active=tuple((place - first, value, rank) for place, value, rank in active if first <= place < end),
        )
