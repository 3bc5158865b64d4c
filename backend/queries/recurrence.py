"""Stored recurrences: in how many other runs each expert was found again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import PurePath

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from mxd.backend.database.sql import among
from mxd.backend.schemas.experts import ExpertRecurrence, RecurrenceMatch
from mxd.trainer.analysis.results import RECURRENCE_COMMAND, is_found, stored_matches
from mxd.trainer.config import RecurrenceConfig
from mxd.trainer.storage.database.tables import IndexRecord, MeasurementRecord, RecurrenceRecord, RunRecord


@dataclass(frozen=True)
class FoundAgain:
    """In how many other runs an expert was found again."""

    recurrence: int
    """Number of other runs in which it was found again."""
    compared_runs: int
    """Number of other runs."""
    firing_cosine: float
    """Mean over the other runs of the cosine with the best match."""


def found_again(session: Session, run_id: int, experts: Collection[int] | None = None) -> dict[int, FoundAgain]:
    """Return the recurrence of those of ``experts`` (all, if None) that were measured."""
    table = RecurrenceRecord
    chosen = (
        [table.run_id == run_id] if experts is None else [table.run_id == run_id, among(session, table.expert, experts)]
    )
    columns = table.expert, func.sum(case((is_found(), 1), else_=0)), func.count(), func.avg(table.firing_cosine)
    rows = session.execute(select(*columns).where(*chosen).group_by(table.expert))
    return {expert: FoundAgain(int(times), int(runs), float(cosine)) for expert, times, runs, cosine in rows}


def expert_recurrence(session: Session, run: RunRecord, expert: int) -> ExpertRecurrence | None:
    """Return the matches of an expert in other runs; None if the run was not compared with others."""
    measurement = session.get(MeasurementRecord, (run.id, RECURRENCE_COMMAND))
    if measurement is None:
        return None
    config = RecurrenceConfig.model_validate(measurement.settings)
    matches = stored_matches(session, run.id, expert)
    names = [match.run for match in matches]
    indexed = set(
        session.scalars(
            select(RunRecord.name)
            .join(IndexRecord, IndexRecord.run_id == RunRecord.id)
            .where(RunRecord.name.in_(names))
        )
    )
    return ExpertRecurrence(
        text=PurePath(config.text.dataset).name,
        tokens=config.tokens,
        min_tokens=config.min_tokens,
        matches=tuple(
            RecurrenceMatch(**asdict(match), is_found=match.found, is_indexed=match.run in indexed) for match in matches
        ),
    )
