"""Store scores of labels by a language model with the label that was scored.

The scores are those of ``mxd.trainer.experimental.label_scores``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Engine, delete

from mxd.trainer.storage.database.label_scores import StoredScore
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import LabelScoreRecord
from mxd.trainer.storage.run_records import find_record


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
