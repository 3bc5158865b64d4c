"""Experts that fire together, counted over the routed sample of an index.

The sample is whole sequences with all that is active in them, at most some hundred thousand tokens whatever the text
and the number of experts, so all of it is held in memory and any question about it is a few slices.

Shapes: T tokens of the sample, P active (token, expert) pairs, N experts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from backend import schemas
from backend.queries.experts import with_names
from backend.vocabulary import Vocabulary
from trainer.packing import unpack_routed
from trainer.store import RunRecord, SequenceRecord
from trainer.tables import RoutedRecord

FEWEST = 2
"""Tokens that two experts must share to be named together."""
TOKEN_IDS = np.dtype("<u4")

Shift = Literal[-1, 0, 1]
SHIFTS: tuple[Shift, ...] = (-1, 0, 1)
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Companion:
    """An expert that fires on a token, or just before or after it, where another one does."""

    expert: int
    share: float
    """Of the other's tokens (that have a token there)."""
    lift: float
    """How many times as often as on any token."""
    overlap: float
    """Tokens on which both fire among those on which either does, 0 to 1."""
    tokens: int


class Together:
    """The routed sample of one run."""

    def __init__(self, token_ids_T: Ints, last_T: NDArray[np.bool_], counts_T: Ints, experts_P: Ints, n: int) -> None:
        """``last_T``: whether a token is the last of its sequence."""
        self.num_experts = n
        self.tokens = len(token_ids_T)
        self._token_ids_T = token_ids_T
        self._last_T = last_T
        self._starts_T = np.concatenate([[0], counts_T.cumsum()])
        self._experts_P = experts_P.astype(np.int32)
        token_P = np.repeat(np.arange(self.tokens, dtype=np.int32), counts_T)
        order = np.argsort(experts_P, kind="stable")
        self._tokens_by_expert = token_P[order]
        self.active_N = np.bincount(experts_P, minlength=n)
        self._ends_N = np.concatenate([[0], self.active_N.cumsum()])
        self._make_token_weights(experts_P, token_P)

    def _make_token_weights(self, experts_P: Ints, token_P: NDArray[np.int32]) -> None:
        """Each expert's counts of token ids as a vector of length 1, kept by token id."""
        keys, counts = np.unique(self._token_ids_T[token_P] * self.num_experts + experts_P, return_counts=True)
        self._weight_token, self._weight_expert = np.divmod(keys, self.num_experts)
        norms = np.sqrt(np.bincount(self._weight_expert, counts.astype(float) ** 2, self.num_experts))
        self._weight = counts / norms[self._weight_expert]

    def tokens_of(self, expert: int) -> Ints:
        """Tokens of the sample on which an expert fires."""
        return self._tokens_by_expert[self._ends_N[expert] : self._ends_N[expert + 1]].astype(np.int64)

    def companions(self, expert: int, shift: Shift, limit: int) -> list[Companion]:
        """Those that fire with an expert, or a token before or after it, most overlapping first."""
        tokens = self.tokens_of(expert)
        if shift == 1:
            tokens = tokens[~self._last_T[tokens]]
        elif shift == -1:
            tokens = tokens[(tokens > 0) & ~self._last_T[tokens - 1]]
        counts_N = self._counts(tokens + shift)
        if shift == 0:
            counts_N[expert] = 0
        either_N = self.active_N + len(tokens) - counts_N
        overlap_N = np.where(counts_N >= FEWEST, counts_N / np.maximum(either_N, 1), 0.0)
        best = np.argsort(-overlap_N, kind="stable")[:limit]
        return [
            self._companion(other, len(tokens), int(counts_N[other]), float(overlap_N[other]))
            for other in best.tolist()
            if overlap_N[other] > 0
        ]

    def _companion(self, other: int, tokens: int, count: int, overlap: float) -> Companion:
        share = count / tokens
        return Companion(other, share, share * self.tokens / int(self.active_N[other]), overlap, count)

    def _counts(self, tokens: Ints) -> Ints:
        """[N]: on how many of ``tokens`` each expert fires."""
        starts, lengths = self._starts_T[tokens], self._starts_T[tokens + 1] - self._starts_T[tokens]
        offsets = np.arange(lengths.sum()) - np.repeat(lengths.cumsum() - lengths, lengths)
        return np.bincount(self._experts_P[np.repeat(starts, lengths) + offsets], minlength=self.num_experts)

    def by_tokens(self, expert: int, limit: int) -> list[tuple[int, float]]:
        """Experts that fire on the same words: cosines of how often each fires on which token id, best first."""
        tokens, counts = np.unique(self._token_ids_T[self.tokens_of(expert)], return_counts=True)
        weights = counts / max(np.sqrt((counts.astype(float) ** 2).sum()), 1e-12)
        cosines_N = np.zeros(self.num_experts)
        ends = np.searchsorted(self._weight_token, np.stack([tokens, tokens + 1]))
        for start, end, weight in zip(*ends.tolist(), weights.tolist(), strict=True):
            cosines_N[self._weight_expert[start:end]] += weight * self._weight[start:end]
        cosines_N[expert] = 0
        best = np.argsort(-cosines_N, kind="stable")[:limit]
        return [(other, float(min(cosines_N[other], 1.0))) for other in best.tolist() if cosines_N[other] > 0]


def read_together(session: Session, run_id: int) -> Together:
    """Read a run's sample; it is empty where the index has none."""
    run = session.get_one(RunRecord, run_id)
    same = (SequenceRecord.run_id == RoutedRecord.run_id) & (SequenceRecord.sequence == RoutedRecord.sequence)
    wanted = select(RoutedRecord, SequenceRecord.token_ids).join(SequenceRecord, same)
    nothing = np.zeros(0, np.int64)
    ids, last, all_counts, all_experts = [nothing], [np.zeros(0, np.bool_)], [nothing], [nothing]
    for record, packed in session.execute(wanted.where(RoutedRecord.run_id == run.id).order_by(RoutedRecord.sequence)):
        counts, experts = unpack_routed(record.counts, record.experts, run.num_experts)
        ids.append(np.frombuffer(packed, TOKEN_IDS).astype(np.int64))
        last.append(np.arange(len(counts)) == len(counts) - 1)
        all_counts.append(counts)
        all_experts.append(experts)
    return Together(
        np.concatenate(ids),
        np.concatenate(last),
        np.concatenate(all_counts),
        np.concatenate(all_experts),
        run.num_experts,
    )


def named(
    session: Session, run: RunRecord, found: Sequence[Companion], vocabulary: Vocabulary
) -> tuple[schemas.Companion, ...]:
    """Experts that fire together, with what is known of them."""
    named = with_names(session, run, [(one.expert, one.overlap) for one in found], vocabulary)
    return tuple(
        schemas.Companion(
            expert=one.expert,
            label=name.label,
            automatic=name.automatic,
            top_tokens=name.top_tokens,
            share=one.share,
            lift=one.lift,
            overlap=one.overlap,
            tokens=one.tokens,
        )
        for one, name in zip(found, named, strict=True)
    )
