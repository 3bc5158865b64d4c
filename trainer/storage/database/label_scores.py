"""Stored scores of labels by a language model. They belong to the text of a label: another label has none of them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.trainer.storage.database.tables import LabelScoreRecord


@dataclass(frozen=True)
class StoredScore:
    """Score of a label by a language model, with that of another expert's label on the same texts."""

    method: str
    """``detection``, ``fuzzing`` or ``embedding``."""
    judge: str
    """Name of the language model that scored."""
    score: float | None
    """AUROC; 0.5 is chance. None if it could not be measured, for ``reason``."""
    control: float | None
    """AUROC of another expert's label on the same texts; None if it could not be measured."""
    texts: int
    """Number of held-out texts."""
    reason: str | None
    """Why there is no score."""


def label_scores(session: Session, run_id: int, expert: int, label: str) -> tuple[StoredScore, ...]:
    """Return the scores of a label of an expert, by judge and method; empty if this text was not scored."""
    table = LabelScoreRecord
    query = select(table).where(table.run_id == run_id, table.expert == expert, table.label == label)
    return tuple(
        StoredScore(row.method, row.judge, row.score, row.control, row.texts, row.reason)
        for row in session.scalars(query.order_by(table.judge, table.method))
    )
