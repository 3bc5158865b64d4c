"""Put an index into the store, in one transaction, in the place of the run's index before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Engine, func, insert, select, text
from sqlalchemy.orm import Session
from transformers import PreTrainedTokenizerBase

from trainer.config import IndexConfig
from trainer.errors import NotFoundError
from trainer.indexing.contexts import Contexts, KeptRows, Rows
from trainer.indexing.statistics import BINS, INTERVALS, Ints, Pairs, Statistics, TokenCounts
from trainer.store import (
    SEARCH_TABLE,
    ContextRecord,
    ExpertRecord,
    IndexRecord,
    RunRecord,
    SequenceRecord,
    delete_index,
    utc_now,
    writing,
)

ROWS_PER_INSERT = 5_000
SEARCH_MARGIN = 12
"""Tokens on either side of the peak whose text can be searched."""
ACTIVE = np.dtype([("position", "<u2"), ("coefficient", "<f4")])
TOKEN_IDS = np.dtype("<u4")


@dataclass(frozen=True)
class Gathered:
    """What one pass over the text has brought together."""

    statistics: Statistics
    token_counts: TokenCounts
    contexts: Contexts
    sequences: Sequence[np.ndarray]
    tokens: int
    normalised_mse: float


def write_index(
    store: Engine, run_name: str, config: IndexConfig, gathered: Gathered, tokenizer: PreTrainedTokenizerBase
) -> int:
    """Write an index; readers see the one before until all of this one is there. Returns the number of contexts.

    Raises:
        NotFoundError: the store does not know the run.
    """
    with writing(store) as session:
        run = session.scalar(select(RunRecord).where(RunRecord.name == run_name))
        if run is None:
            raise NotFoundError(f"The store has no run {run_name}; fit it, or register it, into this store first.")
        delete_index(session, run.id)
        first_id = (session.scalar(select(func.max(ContextRecord.id))) or 0) + 1
        contexts = list(_contexts(run.id, first_id, gathered))
        _insert(session, ExpertRecord, list(_experts(run.id, config, gathered)))
        _insert(session, SequenceRecord, list(_sequences(run.id, contexts, gathered.sequences)))
        _insert(session, ContextRecord, contexts)
        _insert_search(session, contexts, gathered.sequences, tokenizer)
        session.add(
            IndexRecord(
                run_id=run.id,
                text=config.text.text,
                seed=config.seed,
                tokens=gathered.tokens,
                context=config.text.context,
                experts_active=int((gathered.statistics.active_tokens > 0).sum()),
                contexts=len(contexts),
                normalised_mse=gathered.normalised_mse,
                created_at=utc_now(),
            )
        )
    return len(contexts)


def _insert(session: Session, table: type[Any], rows: list[dict[str, Any]]) -> None:
    for start in range(0, len(rows), ROWS_PER_INSERT):
        session.execute(insert(table), rows[start : start + ROWS_PER_INSERT])


def _experts(run_id: int, config: IndexConfig, gathered: Gathered) -> Iterator[dict[str, Any]]:
    statistics = gathered.statistics
    top_tokens, entropy = gathered.token_counts.summary(config.top_tokens)
    highs, means, p99 = statistics.highs, statistics.means, statistics.percentiles(0.99)
    for expert, active in enumerate(statistics.active_tokens.tolist()):
        yield {
            "run_id": run_id,
            "expert": expert,
            "active_tokens": active,
            "usage": active / gathered.tokens,
            "mean": float(means[expert]),
            "largest": float(statistics.largest[expert]),
            "p99": float(p99[expert]),
            "entropy": float(entropy[expert]),
            "top_tokens": top_tokens[expert],
            "histogram": statistics.histogram_NB[expert].tolist(),
            "histogram_high": float(highs[expert]),
            "intervals": _interval_edges(statistics.histogram_NB[expert], float(highs[expert])),
        }


def _interval_edges(histogram_B: Ints, high: float) -> list[list[float]]:
    """[[low, high, active tokens], …], highest first, without the empty ones above the largest coefficient."""
    counts = histogram_B.reshape(INTERVALS, BINS // INTERVALS).sum(axis=1)
    filled = int(np.flatnonzero(counts).max(initial=-1)) + 1
    return [
        [place * high / INTERVALS, (place + 1) * high / INTERVALS, int(counts[place])]
        for place in reversed(range(filled))
    ]


def _contexts(run_id: int, first_id: int, gathered: Gathered) -> Iterator[dict[str, Any]]:
    kept, statistics = gathered.contexts, gathered.statistics
    active = _ActiveLookup(kept.active_around())
    top = kept.top.held(np.arange(kept.num_experts))
    random = kept.random.held(np.arange(kept.num_experts * INTERVALS))
    expert, place = np.divmod(random.group, INTERVALS)
    filled = np.floor(np.ldexp(statistics.largest, (3 - statistics.exponents).clip(-1000, 1000).astype(np.int32)))
    # Numbered from the highest interval that holds anything, as they are listed.
    interval = filled[expert].astype(np.int64) - place + 1
    number = first_id
    for rows, experts, intervals in ((top, top.group, np.zeros(len(top.group), np.int64)), (random, expert, interval)):
        ranks = _ranks(rows, kept.top if rows is top else kept.random)
        for row in zip(
            experts.tolist(), intervals.tolist(), ranks, *(field.tolist() for field in rows[2:]), strict=True
        ):
            of_expert, of_interval, rank, sequence, position, coefficient = row
            yield {
                "id": number,
                "run_id": run_id,
                "expert": of_expert,
                "interval": of_interval,
                "rank": rank,
                "sequence": sequence,
                "position": position,
                "coefficient": coefficient,
                "active": active.packed(of_expert, sequence),
            }
            number += 1


def _ranks(rows: Rows, table: KeptRows) -> list[int]:
    filled = np.isfinite(table.key_GR[np.unique(rows.group)])
    return [rank for count in filled.sum(axis=1).tolist() for rank in range(count)]


class _ActiveLookup:
    """Where an expert is active in a sequence, by binary search in the sorted log."""

    def __init__(self, active: Pairs) -> None:
        self.span = int(active.sequence.max(initial=0)) + 1
        self.keys = active.expert * self.span + active.sequence
        self.packed_P = np.zeros(len(active.expert), ACTIVE)
        self.packed_P["position"] = active.position
        self.packed_P["coefficient"] = active.coefficient

    def packed(self, expert: int, sequence: int) -> bytes:
        key = expert * self.span + sequence
        start, end = np.searchsorted(self.keys, [key, key + 1])
        return self.packed_P[start:end].tobytes()


def _sequences(
    run_id: int, contexts: list[dict[str, Any]], sequences: Sequence[np.ndarray]
) -> Iterator[dict[str, Any]]:
    for number in sorted({context["sequence"] for context in contexts}):
        yield {"run_id": run_id, "sequence": number, "token_ids": sequences[number].astype(TOKEN_IDS).tobytes()}


def _insert_search(
    session: Session,
    contexts: list[dict[str, Any]],
    sequences: Sequence[np.ndarray],
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    if session.get_bind().dialect.name != "sqlite":
        return
    largest = [context for context in contexts if context["interval"] == 0]
    for start in range(0, len(largest), ROWS_PER_INSERT):
        chunk = largest[start : start + ROWS_PER_INSERT]
        windows = [
            sequences[context["sequence"]][max(0, context["position"] - SEARCH_MARGIN) :][
                : 2 * SEARCH_MARGIN + 1
            ].tolist()
            for context in chunk
        ]
        bodies = tokenizer.batch_decode(windows)
        rows = [{"id": context["id"], "body": body} for context, body in zip(chunk, bodies, strict=True)]
        session.execute(text(f"INSERT INTO {SEARCH_TABLE} (rowid, body) VALUES (:id, :body)"), rows)
