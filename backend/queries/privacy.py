"""Stored results of privacy fine-tuning, and the indexed text used as retain text."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.queries.runs import aware, find_index
from mxd.backend.schemas import PrivacyList, ProtectedRuns
from mxd.trainer.config.privacy import SUBJECT
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.column_types import TOKEN_IDS
from mxd.trainer.storage.database.tables import EvaluationRecord, RunRecord, SequenceRecord


def protected_runs(session: Session, run: RunRecord) -> PrivacyList:
    """Return the results that involve a run, newest first."""
    query = select(EvaluationRecord).where(EvaluationRecord.subject.startswith(SUBJECT))
    records = [
        record
        for record in session.scalars(query.order_by(EvaluationRecord.created_at.desc(), EvaluationRecord.id.desc()))
        if run.name in (*record.result["runs"], *record.result["parents"])
    ]
    return PrivacyList(protected=tuple(_described(session, record) for record in records))


def newest_of(session: Session, run: str) -> ProtectedRuns:
    """Return the result stored with a new run."""
    query = select(EvaluationRecord).join(RunRecord, RunRecord.id == EvaluationRecord.run_id)
    record = session.scalars(query.where(RunRecord.name == run, EvaluationRecord.subject.startswith(SUBJECT))).one()
    return _described(session, record)


def _described(session: Session, record: EvaluationRecord) -> ProtectedRuns:
    names = set(record.result["runs"])
    present = set(session.scalars(select(RunRecord.name).where(RunRecord.name.in_(names))))
    return ProtectedRuns(
        created_at=aware(record.created_at),
        text=record.text,
        max_added_loss=record.settings["max_added_loss"],
        skip_tokens=record.settings["skip_tokens"],
        has_runs=present == names,
        result=record.result,
    )


def indexed_text(session: Session, run: RunRecord, tokens: int, seed: int) -> npt.NDArray[np.int64]:
    """Return random sequences [S, L] of a run's indexed text, in text order.

    Raises:
        NoIndexError: the run has no index.
        UserError: the index has no sequences.
    """
    find_index(session, run)
    of_run = select(SequenceRecord.sequence).where(SequenceRecord.run_id == run.id)
    sequences = session.scalars(of_run.order_by(SequenceRecord.sequence)).all()
    query = min(len(sequences), max(1, tokens // run.context_length))
    drawn = random.Random(seed).sample(sequences, query)
    chosen = of_run.with_only_columns(SequenceRecord.token_ids).where(SequenceRecord.sequence.in_(drawn))
    rows = [np.frombuffer(ids, TOKEN_IDS) for ids in session.scalars(chosen.order_by(SequenceRecord.sequence))]
    records = [row.astype(np.int64) for row in rows if len(row) == len(rows[0])]
    if not records:
        raise UserError(f"The index of '{run.name}' has no text. Index the run again.")
    return np.stack(records)
