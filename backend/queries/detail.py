"""One expert in full: its row from memory, the rest from the store."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from backend import lists, notes
from backend.queries.automatic import automatic_labels
from backend.queries.browsing import BrowsedRun
from backend.queries.rows import rows_at
from backend.schemas import ExpertDetail, ExpertRow, Interval, ListRef
from backend.vocabulary import Vocabulary
from trainer.store import ContextRecord, ExpertRecord


def expert_detail(session: Session, browsed: BrowsedRun, expert: int, vocabulary: Vocabulary) -> ExpertDetail:
    """One expert with its intervals, its note and its active neighbours.

    Raises:
        ExpertNotFoundError: the run has no such expert.
    """
    run = browsed.record
    (row,) = rows_at(browsed, [browsed.place(expert)], vocabulary)
    previous, following = browsed.columns.neighbours(expert)
    row = {**row, "top_tokens": tuple(row["top_tokens"]), "histogram": tuple(row["histogram"])}
    automatic = automatic_labels(session, run, [expert]) if row["automatic"] else {}
    return ExpertDetail(
        row=ExpertRow.model_validate(row),
        note=notes.note_of(session, run.name, expert),
        lists=tuple(
            ListRef(id=number, name=name) for number, name in lists.lists_holding(session, run.name, [expert])[expert]
        ),
        previous=previous,
        next=following,
        intervals=_intervals(session, run.id, expert, row["active_tokens"]),
        automatic_labels=automatic.get(expert, ()),
    )


def _intervals(session: Session, run_id: int, expert: int, active_tokens: int) -> tuple[Interval, ...]:
    interval, coefficient = ContextRecord.interval, ContextRecord.coefficient
    stored = (
        select(interval, func.count(), func.min(coefficient), func.max(coefficient))
        .where(ContextRecord.run_id == run_id, ContextRecord.expert == expert)
        .group_by(interval)
    )
    held = {number: (count, low, high) for number, count, low, high in session.execute(stored)}
    active = max(active_tokens, 1)
    count, low, high = held.get(0, (0, 0.0, 0.0))
    largest = Interval(interval=0, low=low, high=high, active_tokens=count, share=count / active, contexts=count)
    return (
        largest,
        *(
            Interval(
                interval=number,
                low=low,
                high=high,
                active_tokens=int(tokens),
                share=tokens / active,
                contexts=held.get(number, (0,))[0],
            )
            for number, (low, high, tokens) in enumerate(_bounds(session, run_id, expert), start=1)
        ),
    )


def _bounds(session: Session, run_id: int, expert: int) -> Sequence[Sequence[float]]:
    of_expert = ExpertRecord.run_id == run_id, ExpertRecord.expert == expert
    return session.scalar(select(ExpertRecord.intervals).where(*of_expert)) or ()
