"""How easily the experts of a run are described: label scores and token entropies, as means over experts."""

from __future__ import annotations

import math
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from mxd.backend.queries.automatic_labels import FEATURES
from mxd.backend.schemas import Interpretability, MeanOverExperts
from mxd.trainer.storage.database.tables import AutomaticLabelRecord, ExpertRecord, IndexRecord, RunRecord

MIN_EXPERTS = 2
"""Number of experts that a standard error needs."""


def interpretability(session: Session, run: RunRecord) -> Interpretability | None:
    """Return the measures of a run's experts, or None if it is not indexed."""
    index = session.get(IndexRecord, run.id)
    if index is None:
        return None
    expert, label = ExpertRecord, AutomaticLabelRecord
    return Interpretability(
        indexed_tokens=index.tokens,
        index_text=index.text,
        token_entropy=_mean(session, expert.entropy, expert.run_id == run.id, expert.active_tokens > 0),
        # Only one labeller, so that runs are comparable. Imported labels have no test examples and no score.
        label_score=_mean(
            session,
            label.balanced_accuracy,
            label.run_id == run.id,
            label.labeller == FEATURES,
            label.test_examples > 0,
        ),
    )


def _mean(
    session: Session, column: InstrumentedAttribute[float], *conditions: ColumnElement[Any]
) -> MeanOverExperts | None:
    query = select(func.count(column), func.avg(column), func.avg(column * column)).where(*conditions)
    count, mean, mean_square = session.execute(query).one()
    if count < MIN_EXPERTS:
        return None
    variance = max(0.0, mean_square - mean**2) * count / (count - 1)
    return MeanOverExperts(value=mean, standard_error=math.sqrt(variance / count), experts=count)
