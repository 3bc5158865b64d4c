"""Store which experts of a run were found again, and read it back."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Engine, and_, delete, insert, select
from sqlalchemy.orm import Session

from mxd.trainer.analysis.recurrence.results import Match, Recurrence
from mxd.trainer.config import RecurrenceConfig
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import IndexRecord, MeasurementRecord, RecurrenceRecord, RunRecord

COMMAND = "recurrence"
"""Key of the settings among the run's measurements."""


def save_recurrence(database: Engine, result: Recurrence, config: RecurrenceConfig) -> bool:
    """Replace the stored matches of a run's experts. Return whether they were stored: only those of an indexed run are.

    The settings get the number of tokens that were read.
    """
    with writing(database) as session:
        run_id = session.scalar(
            select(RunRecord.id)
            .join(IndexRecord, IndexRecord.run_id == RunRecord.id)
            .where(RunRecord.name == result.run)
        )
        if run_id is None:
            return False
        session.execute(delete(RecurrenceRecord).where(RecurrenceRecord.run_id == run_id))
        session.execute(insert(RecurrenceRecord), _rows(result, run_id))
        settings = config.model_copy(update={"tokens": result.tokens}).model_dump(mode="json")
        session.merge(MeasurementRecord(run_id=run_id, command=COMMAND, settings=settings))
    return True


def _rows(result: Recurrence, run_id: int) -> list[dict[str, int | float | bool | str]]:
    return [
        {
            "run_id": run_id,
            "expert": expert.expert,
            "other_run": match.run,
            "other_expert": match.expert,
            "mutual": match.mutual,
            "firing_cosine": match.firing_cosine,
            "firing_low": match.firing_low,
            "firing_high": match.firing_high,
            "firing_chance": match.firing_chance,
            "writing_cosine": match.writing_cosine,
            "writing_chance": match.writing_chance,
        }
        for expert in result.experts
        for match in expert.matches
    ]


def is_found() -> ColumnElement[bool]:
    """Return the SQL form of ``Match.found``."""
    table = RecurrenceRecord
    return and_(table.mutual, table.firing_cosine > table.firing_chance, table.writing_cosine > table.writing_chance)


def stored_matches(session: Session, run_id: int, expert: int) -> tuple[Match, ...]:
    """Return the match of an expert in each other run, by name; empty if the expert was not measured."""
    table = RecurrenceRecord
    rows = session.scalars(
        select(table).where(table.run_id == run_id, table.expert == expert).order_by(table.other_run)
    )
    return tuple(
        Match(
            run=row.other_run,
            expert=row.other_expert,
            firing_cosine=row.firing_cosine,
            writing_cosine=row.writing_cosine,
            firing_low=row.firing_low,
            firing_high=row.firing_high,
            firing_chance=row.firing_chance,
            writing_chance=row.writing_chance,
            mutual=row.mutual,
        )
        for row in rows
    )
