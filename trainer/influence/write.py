"""What was measured of experts, into the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import insert, update
from sqlalchemy.orm import Session

from trainer.config import InfluenceConfig
from trainer.store import ExpertRecord, InfluenceRecord, MeasurementRecord, delete_influences

IN_TABLE = ("added_loss", "kl_up", "output_share", "input_dependence")
"""What the table of experts is sorted by, kept with the experts too."""


def write_influences(session: Session, run_id: int, found: Sequence[dict[str, Any]], config: InfluenceConfig) -> None:
    """Replace what the store held of a run's experts, in the caller's transaction.

    Args:
        found: the columns of ``InfluenceRecord`` but for the run, of experts that the store knows.
        config: with which they were measured.
    """
    delete_influences(session, run_id)
    session.merge(MeasurementRecord(run_id=run_id, command="influence", settings=config.model_dump(mode="json")))
    rows = [{"run_id": run_id, **values} for values in found]
    if rows:
        session.execute(insert(InfluenceRecord), rows)
        session.execute(
            update(ExpertRecord),
            [{name: row[name] or 0.0 for name in ("run_id", "expert", *IN_TABLE)} for row in rows],
        )
