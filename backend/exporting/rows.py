"""What is exported of a run, some experts at a time: plain data, so that every format writes the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.queries.contexts import described, stored_contexts
from backend.queries.experts import rows_of
from backend.queries.runs import find_index
from backend.vocabulary import Vocabulary
from trainer.store import ContextRecord, ExpertRecord, IndexRecord, InfluenceRecord, RunRecord

AT_A_TIME = 128
"""Experts of a chunk; also of a file in a format of one file a chunk."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Chunk:
    """Some experts of a run with their contexts."""

    experts: Sequence[Row]
    """As ``ExpertRow`` travels, with ``intervals``."""
    contexts: Sequence[Row]
    """As ``Context`` travels, with its expert."""
    influences: Mapping[int, InfluenceRecord]

    def contexts_by_expert(self) -> dict[int, list[Row]]:
        """The contexts of each expert that has any."""
        return {expert: list(rows) for expert, rows in groupby(self.contexts, key=lambda row: int(row["expert"]))}


@dataclass(frozen=True)
class Exported:
    """What a run's experts come from."""

    run: RunRecord
    index: IndexRecord
    vocabulary: Vocabulary


def chunks(session: Session, exported: Exported) -> Iterator[Chunk]:
    """All experts of an indexed run by id, dead ones too."""
    for first in range(0, exported.run.num_experts, AT_A_TIME):
        yield _chunk(session, exported, range(first, min(first + AT_A_TIME, exported.run.num_experts)))


def open_run(session: Session, run: RunRecord, vocabulary: Vocabulary) -> Exported:
    """An indexed run to export.

    Raises:
        NoIndexError: it has no index.
    """
    return Exported(run, find_index(session, run), vocabulary)


def _chunk(session: Session, exported: Exported, experts: range) -> Chunk:
    run, vocabulary = exported.run, exported.vocabulary
    within = (ExpertRecord.run_id == run.id, ExpertRecord.expert.in_(experts))
    edges = {row.expert: row.intervals for row in session.execute(select(ExpertRecord).where(*within)).scalars()}
    rows = rows_of(session, run, experts, vocabulary)
    order = [ContextRecord.expert, ContextRecord.interval, ContextRecord.rank]
    wanted = [ContextRecord.run_id == run.id, ContextRecord.expert.in_(experts)]
    found = stored_contexts(session, wanted, order)
    influence = select(InfluenceRecord).where(InfluenceRecord.run_id == run.id, InfluenceRecord.expert.in_(experts))
    return Chunk(
        experts=[rows[expert].model_dump() | {"intervals": edges[expert]} for expert in experts if expert in rows],
        contexts=[{"expert": context.expert} | described(context, vocabulary) for context in found],
        influences={record.expert: record for record in session.scalars(influence)},
    )
