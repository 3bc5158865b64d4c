"""Rows to export, some experts at a time: plain data, the same for every format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.inference.token_text import Vocabulary
from mxd.backend.queries.examples import described, stored_examples
from mxd.backend.queries.experts import rows_of
from mxd.backend.queries.runs import find_index
from mxd.trainer.storage.database.tables import AblationRecord, ExampleRecord, ExpertRecord, IndexRecord, RunRecord

AT_A_TIME = 128
"""Experts per chunk, and per file in formats with several files."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Chunk:
    """Some experts of a run with their examples."""

    experts: Sequence[Row]
    """``ExpertRow`` as JSON, with ``bins``."""
    examples: Sequence[Row]
    """``Example`` as JSON, with its expert."""
    ablations: Mapping[int, AblationRecord]

    def examples_by_expert(self) -> dict[int, list[Row]]:
        """Yield the examples of each expert that has any."""
        return {expert: list(rows) for expert, rows in groupby(self.examples, key=lambda row: int(row["expert"]))}


@dataclass(frozen=True)
class Exported:
    """Context of an export: the run and its database."""

    run: RunRecord
    index: IndexRecord
    vocabulary: Vocabulary


def chunks(session: Session, exported: Exported) -> Iterator[Chunk]:
    """Yield all experts of an indexed run by id, dead ones included."""
    for first in range(0, exported.run.num_experts, AT_A_TIME):
        yield chunk_of(session, exported, range(first, min(first + AT_A_TIME, exported.run.num_experts)))


def open_run(session: Session, run: RunRecord, vocabulary: Vocabulary) -> Exported:
    """Open an indexed run for export.

    Raises:
        NoIndexError: it has no index.
    """
    return Exported(run, find_index(session, run), vocabulary)


def chunk_of(session: Session, exported: Exported, experts: Sequence[int]) -> Chunk:
    """Return some experts with their examples."""
    run, vocabulary = exported.run, exported.vocabulary
    within = (ExpertRecord.run_id == run.id, ExpertRecord.expert.in_(experts))
    edges = {row.expert: row.bins for row in session.execute(select(ExpertRecord).where(*within)).scalars()}
    rows = rows_of(session, run, experts, vocabulary)
    order = [ExampleRecord.expert, ExampleRecord.bin, ExampleRecord.rank]
    conditions = [ExampleRecord.run_id == run.id, ExampleRecord.expert.in_(experts)]
    stored = stored_examples(session, conditions, order)
    influence = select(AblationRecord).where(AblationRecord.run_id == run.id, AblationRecord.expert.in_(experts))
    return Chunk(
        experts=[rows[expert].model_dump() | {"bins": edges[expert]} for expert in experts if expert in rows],
        examples=[{"expert": example.expert} | described(example, vocabulary) for example in stored],
        ablations={record.expert: record for record in session.scalars(influence)},
    )
