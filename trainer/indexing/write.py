"""Put an index into the store, in one transaction, in the place of the run's index before."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import Engine, insert
from sqlalchemy.orm import Session

from trainer.config import IndexConfig
from trainer.indexing.contexts import Kept, Sequences
from trainer.indexing.gather import Gathered
from trainer.indexing.pairs import Ints, Pairs
from trainer.indexing.sample import RoutedSample
from trainer.indexing.statistics import BINS, INTERVALS
from trainer.packing import ACTIVE, TOKEN_IDS, pack_routed
from trainer.registration import registered
from trainer.search_text import SEARCH_MARGIN, insert_search, make_search_table, search_body
from trainer.store import (
    ContextRecord,
    ExpertRecord,
    IndexRecord,
    SequenceRecord,
    delete_index,
    utc_now,
    writing,
)
from trainer.tables import RoutedRecord

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ROWS_PER_INSERT = 5_000
EXPERTS_PER_INSERT = 200


def write_index(
    store: Engine, run_name: str, config: IndexConfig, gathered: Gathered, tokenizer: PreTrainedTokenizerBase
) -> int:
    """Write an index; readers see the one before until all of this one is there. Returns the number of contexts.

    Raises:
        NotFoundError: the store does not know the run.
    """
    with writing(store) as session:
        run = registered(session, run_name)
        delete_index(session, run.id)
        kept = gathered.settle()
        _insert(session, ExpertRecord, _experts(run.id, config, gathered))
        _insert(session, SequenceRecord, _sequences(run.id, gathered))
        _insert(session, RoutedRecord, _routed(run.id, run.num_experts, gathered.sample))
        _insert(session, ContextRecord, _contexts(run.id, kept, gathered.contexts.pairs))
        _insert_search(session, run.id, kept, gathered.sequences, tokenizer)
        session.add(
            IndexRecord(
                run_id=run.id,
                text=config.text.text,
                seed=config.seed,
                tokens=gathered.tokens,
                context=config.text.context,
                experts_active=int((gathered.statistics.active_tokens > 0).sum()),
                contexts=len(kept.expert),
                normalised_mse=gathered.normalised_mse,
                created_at=utc_now(),
            )
        )
    return len(kept.expert)


def _insert(session: Session, table: type[Any], rows: Iterator[dict[str, Any]]) -> None:
    while chunk := list(islice(rows, ROWS_PER_INSERT)):
        session.execute(insert(table), chunk)


def _experts(run_id: int, config: IndexConfig, gathered: Gathered) -> Iterator[dict[str, Any]]:
    statistics = gathered.statistics
    active, largest = statistics.active_tokens.tolist(), statistics.largest.tolist()
    highs, means, p99 = (
        values.tolist() for values in (statistics.highs, statistics.means, statistics.percentiles(0.99))
    )
    for summary in gathered.token_counts.summaries(config.top_tokens):
        described = zip(summary.top_tokens, summary.entropy.tolist(), strict=True)
        for expert, (top_tokens, entropy) in enumerate(described, start=summary.first):
            histogram_B = statistics.histogram_NB[expert]
            yield {
                "run_id": run_id,
                "expert": expert,
                "active_tokens": active[expert],
                "usage": active[expert] / gathered.tokens,
                "mean": means[expert],
                "largest": largest[expert],
                "p99": p99[expert],
                "entropy": entropy,
                "top_tokens": top_tokens,
                "histogram": histogram_B.tolist(),
                "histogram_high": highs[expert],
                "intervals": _interval_edges(histogram_B, highs[expert]),
            }


def _interval_edges(histogram_B: Ints, high: float) -> list[list[float]]:
    """[[low, high, active tokens], …], highest first, without the empty ones above the largest coefficient."""
    counts = histogram_B.reshape(INTERVALS, BINS // INTERVALS).sum(axis=1)
    filled = int(np.flatnonzero(counts).max(initial=-1)) + 1
    return [
        [place * high / INTERVALS, (place + 1) * high / INTERVALS, int(counts[place])]
        for place in reversed(range(filled))
    ]


def _contexts(run_id: int, kept: Kept, pairs: Pairs) -> Iterator[dict[str, Any]]:
    active_P = np.zeros(len(pairs.expert), ACTIVE)
    active_P["position"], active_P["coefficient"], active_P["rank"] = pairs.position, pairs.coefficient, pairs.rank
    for start in range(0, len(kept.expert), ROWS_PER_INSERT):
        # Some at a time: as Python objects, all of them would take many times their room.
        rows = zip(*(field[start : start + ROWS_PER_INSERT].tolist() for field in kept), strict=True)
        for row in rows:
            expert, interval, rank, sequence, position, coefficient, low, high = row
            yield {
                "run_id": run_id,
                "expert": expert,
                "interval": interval,
                "rank": rank,
                "sequence": sequence,
                "position": position,
                "coefficient": coefficient,
                "active": active_P[low:high].tobytes(),
            }


def _routed(run_id: int, num_experts: int, sample: RoutedSample) -> Iterator[dict[str, Any]]:
    for number in sample.sequences:
        counts, experts = pack_routed(*sample.routed(number), num_experts)
        yield {"run_id": run_id, "sequence": number, "counts": counts, "experts": experts}


def _sequences(run_id: int, gathered: Gathered) -> Iterator[dict[str, Any]]:
    for number, token_ids in sorted((gathered.sequences.token_ids | gathered.sample.token_ids).items()):
        yield {"run_id": run_id, "sequence": number, "token_ids": token_ids.astype(TOKEN_IDS).tobytes()}


def _insert_search(
    session: Session, run_id: int, kept: Kept, sequences: Sequences, tokenizer: PreTrainedTokenizerBase
) -> None:
    make_search_table(session, run_id)
    largest = np.flatnonzero(kept.interval == 0)
    # Experts, not contexts, at a time: each is one document.
    edges = np.flatnonzero(np.diff(kept.expert[largest], prepend=-1))[::EXPERTS_PER_INSERT].tolist()
    for start, end in pairwise([*edges, len(largest)]):
        chunk = largest[start:end]
        bodies = tokenizer.batch_decode(_windows(kept, chunk, sequences))
        of_expert = groupby(zip(kept.expert[chunk].tolist(), bodies, strict=True), key=lambda pair: pair[0])
        insert_search(
            session, run_id, ((expert, search_body(body for _, body in pairs)) for expert, pairs in of_expert)
        )


def _windows(kept: Kept, chosen: Ints, sequences: Sequences) -> list[list[int]]:
    places = zip(kept.sequence[chosen].tolist(), kept.position[chosen].tolist(), strict=True)
    return [
        sequences.token_ids[sequence][max(0, position - SEARCH_MARGIN) : position + SEARCH_MARGIN + 1].tolist()
        for sequence, position in places
    ]
