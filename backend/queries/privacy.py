"""Runs that protect passages, as the store has them, and the text that their index was made of."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.queries.runs import aware, find_index
from backend.schemas import PrivacyList, PrivacyResult, ProtectedRuns
from trainer.errors import UserError
from trainer.packing import TOKEN_IDS
from trainer.protect_config import SUBJECT
from trainer.store import EvaluationRecord, RunRecord, SequenceRecord


def protected_runs(session: Session, run: RunRecord) -> PrivacyList:
    """What protects passages and began as this run, or is this run itself; the newest first."""
    wanted = select(EvaluationRecord).where(EvaluationRecord.subject.startswith(SUBJECT))
    found = [
        record
        for record in session.scalars(wanted.order_by(EvaluationRecord.created_at.desc(), EvaluationRecord.id.desc()))
        if run.name in (*record.result["runs"], *record.result["began_as"])
    ]
    return PrivacyList(protected=tuple(described(record) for record in found))


def newest_of(session: Session, run: str) -> ProtectedRuns:
    """What was measured when this run was made."""
    wanted = select(EvaluationRecord).join(RunRecord, RunRecord.id == EvaluationRecord.run_id)
    record = session.scalars(wanted.where(RunRecord.name == run, EvaluationRecord.subject.startswith(SUBJECT))).one()
    return described(record)


def described(record: EvaluationRecord) -> ProtectedRuns:
    """One of them as it travels."""
    return ProtectedRuns(
        created_at=aware(record.created_at),
        text=record.text,
        most_added=record.settings["most_added"],
        result=PrivacyResult.model_validate(record.result),
    )


def indexed_text(session: Session, run: RunRecord, tokens: int, seed: int) -> npt.NDArray[np.int64]:
    """Sequences [S, L] of the text that a run's index keeps contexts of, drawn at random, in the order of the text.

    Raises:
        NoIndexError: it has no index.
        UserError: there are none of the length that it was made with.
    """
    find_index(session, run)
    of_run = select(SequenceRecord.sequence).where(SequenceRecord.run_id == run.id)
    places = session.scalars(of_run.order_by(SequenceRecord.sequence)).all()
    wanted = min(len(places), max(1, tokens // run.context))
    drawn = random.Random(seed).sample(places, wanted)
    chosen = of_run.with_only_columns(SequenceRecord.token_ids).where(SequenceRecord.sequence.in_(drawn))
    rows = [np.frombuffer(ids, TOKEN_IDS) for ids in session.scalars(chosen.order_by(SequenceRecord.sequence))]
    found = [row.astype(np.int64) for row in rows if len(row) == len(rows[0])]
    if not found:
        raise UserError(f"The index of {run.name} keeps no text; index it again.")
    return np.stack(found)
