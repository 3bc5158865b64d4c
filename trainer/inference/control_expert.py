"""The control expert of a strength sweep: a random expert of similar density, from the index."""

from __future__ import annotations

import random
from typing import TypeVar

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from mxd.trainer.config import DoseConfig
from mxd.trainer.storage.database.tables import ExpertRecord, RunRecord

AnyDose = TypeVar("AnyDose", bound=DoseConfig)
NUM_CANDIDATES = 16
"""Number of experts of nearest density from which the control is drawn."""


def with_control(session: Session, config: AnyDose, steered: str) -> AnyDose:
    """Name the control expert of a sweep, unless it is given or the run has no index.

    Args:
        session: open session of the database.
        config: the request.
        steered: name of the run that edits without a run refer to.
    """
    if config.control is not None or config.edit >= len(config.edits):
        return config
    varied = config.edits[config.edit]
    candidates = _nearest_by_density(session, varied.run or steered, varied.expert)
    if not candidates:
        return config
    return config.model_copy(update={"control": random.Random(varied.expert).choice(candidates)})


def _nearest_by_density(session: Session, run: str, expert: int) -> list[int]:
    """Active experts with the densities nearest to that of one expert; empty if it has no index."""
    record = session.scalar(
        select(ExpertRecord).join(RunRecord).where(RunRecord.name == run, ExpertRecord.expert == expert)
    )
    if record is None:
        return []
    query = (
        select(ExpertRecord.expert)
        .where(ExpertRecord.run_id == record.run_id, ExpertRecord.expert != expert, ExpertRecord.density > 0)
        .order_by(func.abs(ExpertRecord.density - record.density), ExpertRecord.expert)
        .limit(NUM_CANDIDATES)
    )
    return list(session.scalars(query))
