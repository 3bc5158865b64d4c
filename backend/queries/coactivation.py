"""Coactivation of experts, counted over the routed sample of an index.

The sample has complete sequences with all active experts, at most some hundred thousand tokens, and is kept in memory.

Shapes: T sampled tokens, P active (token, expert) pairs, N experts.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.schemas.experts import SharedTokens
from mxd.trainer.storage.database.column_types import unpack_routed
from mxd.trainer.storage.database.tables import RoutedRecord, RunRecord, SequenceRecord
from mxd.trainer.utils.bootstrap import wilson_interval

MIN_TOKENS = 2
"""Fewest shared tokens of coactivating experts."""
MIN_EVENTS = 20
"""Active tokens below which an expert's shares and examples are anecdotes: with 20, the 95 % interval of a share is
up to 0.4 wide."""
TOKEN_IDS = np.dtype("<u4")

Shift = Literal[-1, 0, 1]
SHIFTS: tuple[Shift, ...] = (-1, 0, 1)
Ints = NDArray[np.int64]


Closest = tuple[list[tuple[int, float]], float | None]
"""(expert, similarity), most similar first, and the 95th percentile of the similarity over all other experts, for
comparison; None if it would say nothing."""


def closest(similarity_N: NDArray[np.floating[Any]], expert: int, count: int) -> Closest:
    """Return the ``count`` experts most similar to ``expert``, of which the similarities to all N experts are given."""
    order_N = np.argsort(-similarity_N, kind="stable")
    others = order_N[order_N != expert]
    if not len(others):
        return [], None
    similarity = similarity_N[others].clip(-1, 1)
    pairs = zip(others[:count].tolist(), similarity[:count].tolist(), strict=True)
    return list(pairs), float(np.percentile(similarity, 95))


class Companion(NamedTuple):
    """An expert that is active on or next to another one's tokens."""

    expert: int
    jaccard: float
    shared: SharedTokens


class CoactivationIndex:
    """Routed sample of one run."""

    def __init__(self, token_ids_T: Ints, last_T: NDArray[np.bool_], counts_T: Ints, experts_P: Ints, n: int) -> None:
        """Index the sample. ``last_T`` marks the last token of each sequence."""
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
        # Each expert's token counts as a unit vector, indexed by token id.
        keys, counts = np.unique(token_ids_T[token_P] * n + experts_P, return_counts=True)
        self._weight_token, self._weight_expert = np.divmod(keys, n)
        norms = np.sqrt(np.bincount(self._weight_expert, counts.astype(float) ** 2, n))
        self._weight = counts / norms[self._weight_expert]

    def tokens_of(self, expert: int) -> Ints:
        return self._tokens_by_expert[self._ends_N[expert] : self._ends_N[expert + 1]].astype(np.int64)

    def companions(self, expert: int, shift: Shift, limit: int) -> list[Companion]:
        """Return the experts active at a distance of ``shift`` tokens, by descending Jaccard index. With at least
        ``MIN_EVENTS`` tokens, only those whose interval is above their rate on all tokens."""
        tokens = self.tokens_of(expert)
        if shift == 1:
            tokens = tokens[~self._last_T[tokens]]
        elif shift == -1:
            tokens = tokens[(tokens > 0) & ~self._last_T[tokens - 1]]
        beside = tokens + shift
        starts, lengths = self._starts_T[beside], self._starts_T[beside + 1] - self._starts_T[beside]
        offsets = np.arange(lengths.sum()) - np.repeat(lengths.cumsum() - lengths, lengths)
        active = self._experts_P[np.repeat(starts, lengths) + offsets]
        counts_N = np.bincount(active, minlength=self.num_experts)
        if shift == 0:
            counts_N[expert] = 0
        either_N = self.active_N + len(tokens) - counts_N
        jaccard_N = np.where(counts_N >= MIN_TOKENS, counts_N / np.maximum(either_N, 1), 0.0)
        companions: list[Companion] = []
        for other in np.argsort(-jaccard_N, kind="stable").tolist():
            if len(companions) == limit or jaccard_N[other] == 0:
                break
            count, jaccard = int(counts_N[other]), float(jaccard_N[other])
            rate = int(self.active_N[other]) / self.tokens
            share, interval, lift = None, None, None
            if len(tokens) >= MIN_EVENTS:
                share = count / len(tokens)
                interval, lift = wilson_interval(share, len(tokens)), share / rate
            if interval is None or interval[0] > rate:
                shares = {"share": share, "share_interval": interval, "lift": lift}
                companions.append(
                    Companion(other, jaccard, SharedTokens(tokens=count, of_tokens=len(tokens), **shares))
                )
        return companions

    def by_tokens(self, expert: int, limit: int) -> Closest:
        """Return the experts with the most similar token counts, by cosine."""
        tokens, counts = np.unique(self._token_ids_T[self.tokens_of(expert)], return_counts=True)
        weights = counts / max(np.sqrt((counts.astype(float) ** 2).sum()), 1e-12)
        cosines_N = np.zeros(self.num_experts)
        ends = np.searchsorted(self._weight_token, np.stack([tokens, tokens + 1]))
        for start, end, weight in zip(*ends.tolist(), weights.tolist(), strict=True):
            cosines_N[self._weight_expert[start:end]] += weight * self._weight[start:end]
        most_similar, p95 = closest(cosines_N, expert, limit)
        return [pair for pair in most_similar if pair[1] > 0], p95


def load_coactivation(session: Session, run_id: int) -> CoactivationIndex:
    """Load a run's sample. It is empty if the index has none."""
    run = session.get_one(RunRecord, run_id)
    same = (SequenceRecord.run_id == RoutedRecord.run_id) & (SequenceRecord.sequence == RoutedRecord.sequence)
    query = select(RoutedRecord, SequenceRecord.token_ids).join(SequenceRecord, same)
    nothing = np.zeros(0, np.int64)
    ids, last, all_counts, all_experts = [nothing], [np.zeros(0, np.bool_)], [nothing], [nothing]
    for record, packed in session.execute(query.where(RoutedRecord.run_id == run.id).order_by(RoutedRecord.sequence)):
        counts, experts = unpack_routed(record.counts, record.experts, run.num_experts)
        ids.append(np.frombuffer(packed, TOKEN_IDS).astype(np.int64))
        last.append(np.arange(len(counts)) == len(counts) - 1)
        all_counts.append(counts)
        all_experts.append(experts)
    return CoactivationIndex(
        np.concatenate(ids),
        np.concatenate(last),
        np.concatenate(all_counts),
        np.concatenate(all_experts),
        run.num_experts,
    )
