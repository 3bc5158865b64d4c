"""Scores of labels by a language model: store them with the label that was scored, and read those of a label.

The scores are those of ``mxd.trainer.experimental.label_scores``. They belong to the text of a label: once the expert
has another label, they are no longer returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Engine, delete, select
from sqlalchemy.orm import Session

from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import LabelScoreRecord
from mxd.trainer.storage.run_records import find_record


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


@dataclass(frozen=True)
class ScoredText:
    """The text of a label with its scores."""

    label: str
    scores: Sequence[StoredScore]


def save_label_scores(database: Engine, run: str, labels: Mapping[int, ScoredText]) -> None:
    """Store scores of labels, in one transaction.

    They replace earlier ones of the same expert, method and judge, and those of other labels of the expert.

    Args:
        labels: expert -> its label with scores.

    Raises:
        NotFoundError: the run is not in the database.
    """
    table = LabelScoreRecord
    with writing(database) as session:
        run_id = find_record(session, run).id
        for expert, scored in labels.items():
            others = table.run_id == run_id, table.expert == expert, table.label != scored.label
            session.execute(delete(table).where(*others))
            for score in scored.scores:
                session.merge(table(run_id=run_id, expert=expert, label=scored.label, **asdict(score)))


def label_scores(session: Session, run_id: int, expert: int, label: str) -> tuple[StoredScore, ...]:
    """Return the scores of a label of an expert, by judge and method; empty if this text was not scored."""
    table = LabelScoreRecord
    query = select(table).where(table.run_id == run_id, table.expert == expert, table.label == label)
    return tuple(
        StoredScore(row.method, row.judge, row.score, row.control, row.texts, row.reason)
        for row in session.scalars(query.order_by(table.judge, table.method))
    )
