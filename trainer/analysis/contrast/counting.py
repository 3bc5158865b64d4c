"""Count the active tokens of each expert in each document of a text, and keep its strongest examples.

Shapes: S sequences of a batch, L tokens of the longest, T = S * L, P (document, expert) pairs, N experts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from mxd.trainer.analysis.contrast.rate_ratios import DocumentCounts, Floats
from mxd.trainer.analysis.contrast.results import ContrastExample
from mxd.trainer.analysis.contrast.texts import TokenizedText
from mxd.trainer.analysis.indexing.activations import ActivePairs, Ints, active_pairs
from mxd.trainer.analysis.indexing.examples import SelectedExamples, TopExamples
from mxd.trainer.analysis.indexing.statistics import ExpertStatistics
from mxd.trainer.config import ContrastConfig
from mxd.trainer.layers.base import Routing

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
