"""Experts of a run by number: their rows, records and units."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.database.annotations import labels_of, tags_of
from mxd.backend.database.sql import among
from mxd.backend.errors import ExpertNotFoundError
from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.queries.automatic_labels import shown_labels
from mxd.backend.queries.recurrence import found_again
from mxd.backend.queries.runs import find_index
from mxd.backend.schemas.experts import (
    ExpertRow,
    SimilarExpert,
    TokenCount,
)
from mxd.trainer.storage.database.expert_columns import EXPERT_COLUMNS, ExpertRecord
from mxd.trainer.storage.database.tables import RunRecord
from mxd.trainer.utils.display import unknown_expert

ROW_COLUMNS = [column for column in EXPERT_COLUMNS if column.measured_by in ("index", "ablate")]
"""Columns of a row that follow from the expert's record."""
COMPARED = [column.key for column in EXPERT_COLUMNS if column.measured_by == "recurrence"]


def described(
    session: Session, run: RunRecord, records: Sequence[ExpertRecord], vocabulary: Vocabulary
) -> list[dict[str, Any]]:
    """Return ``ExpertRow`` dicts: validating every value of a table would be slow."""
    ids = [record.expert for record in records]
    labels, tagged = labels_of(session, run.name, ids), tags_of(session, run.name, ids)
    automatic, recurrences = shown_labels(session, run, ids), found_again(session, run.id, ids)
    rows = []
    for record in records:
        found = recurrences.get(record.expert)
        # A measured output_share is above 0.
        row = {
            column.key: None if column.measured_by == "ablate" and not record.output_share else column.of(record)
            for column in ROW_COLUMNS
        }
        row |= {key: None if found is None else getattr(found, key) for key in COMPARED}
        row |= {"label": labels.get(record.expert), "tags": tagged.get(record.expert, ())}
        row |= {"automatic": automatic.get(record.expert), "top_tokens": _top_tokens(record, vocabulary)}
        rows.append(row)
    return rows


def rows_of(session: Session, run: RunRecord, experts: Collection[int], vocabulary: Vocabulary) -> dict[int, ExpertRow]:
    """Return the rows of those of ``experts`` that are indexed."""
    records = list(known(session, run, experts).values())
    rows = (ExpertRow.model_validate(row) for row in described(session, run, records, vocabulary))
    return {row.expert: row for row in rows}


def top_tokens(record: ExpertRecord, vocabulary: Vocabulary) -> tuple[TokenCount, ...]:
    """Return the top tokens of an expert."""
    return tuple(map(TokenCount.model_validate, _top_tokens(record, vocabulary)))


def _top_tokens(record: ExpertRecord, vocabulary: Vocabulary) -> list[dict[str, Any]]:
    active, texts = max(record.active_tokens, 1), vocabulary.names([token for token, _ in record.top_tokens])
    return [
        {"id": token, "text": text, "count": count, "share": count / active}
        for (token, count), text in zip(record.top_tokens, texts, strict=True)
    ]


def find_expert(session: Session, run: RunRecord, expert: int) -> ExpertRecord:
    """Return the statistics of an expert.

    Raises:
        NoIndexError: the run is not indexed.
        ExpertNotFoundError: the run has no such expert.
    """
    check_expert(run, expert)
    record = session.get(ExpertRecord, (run.id, expert))
    if record is None:
        find_index(session, run)
        raise not_indexed(run, expert)
    return record


def not_indexed(run: RunRecord, expert: int) -> ExpertNotFoundError:
    """Return the error for an expert that is missing from the index."""
    return ExpertNotFoundError(f"Expert {expert} is missing from the index of '{run.name}'. Index the run again.")


def check_expert(run: RunRecord, expert: int) -> None:
    """Check that an expert exists.

    Raises:
        ExpertNotFoundError: it is not.
    """
    if not 0 <= expert < run.num_experts:
        raise ExpertNotFoundError(unknown_expert(expert, run.name, run.num_experts))


def with_names(
    session: Session, run: RunRecord, similar: Sequence[tuple[int, float]], vocabulary: Vocabulary
) -> tuple[SimilarExpert, ...]:
    """Return similar experts with labels and top tokens; without an index, labels only."""
    ids = [expert for expert, _ in similar]
    labels, automatic = labels_of(session, run.name, ids), shown_labels(session, run, ids)
    records = known(session, run, ids)
    return tuple(
        SimilarExpert(
            expert=expert,
            label=labels.get(expert),
            automatic=automatic.get(expert),
            similarity=cosine,
            top_tokens=top_tokens(records[expert], vocabulary) if expert in records else (),
            shared=None,
        )
        for expert, cosine in similar
    )


def known(session: Session, run: RunRecord, experts: Collection[int]) -> dict[int, ExpertRecord]:
    """Return the statistics of those of ``experts`` that are indexed."""
    statement = select(ExpertRecord).where(ExpertRecord.run_id == run.id, among(session, ExpertRecord.expert, experts))
    return {record.expert: record for record in session.scalars(statement)}
