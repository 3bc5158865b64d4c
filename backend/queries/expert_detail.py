"""One expert in full: its row from memory, the rest from the database."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from mxd.backend.database import annotations as notes
from mxd.backend.database import lists
from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.queries.automatic_labels import accuracy_interval, automatic_labels
from mxd.backend.queries.expert_page import rows_at
from mxd.backend.queries.recurrence import expert_recurrence
from mxd.backend.queries.run_cache import BrowsedRun
from mxd.backend.schemas.experts import ActivationBin, ExpertDetail, ExpertRow, ListRef
from mxd.trainer.storage.database.tables import ExampleRecord, ExpertRecord


def expert_detail(session: Session, browsed: BrowsedRun, expert: int, vocabulary: Vocabulary) -> ExpertDetail:
    """Return an expert with its bins, note, lists and active neighbours.

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
        bins=_bins(session, run.id, expert, row["active_tokens"], row["max_activation"]),
        automatic_labels=automatic.get(expert, ()),
        accuracy_interval=accuracy_interval(row["automatic"], row["density"]),
        recurrence=expert_recurrence(session, run, expert),
    )


def _bins(
    session: Session, run_id: int, expert: int, active_tokens: int, max_activation: float
) -> tuple[ActivationBin, ...]:
    """Return the top examples and the activation bins. The highest bin with active tokens ends at the maximum."""
    bin_column, coefficient = ExampleRecord.bin, ExampleRecord.coefficient
    stored = (
        select(bin_column, func.count(), func.min(coefficient), func.max(coefficient))
        .where(ExampleRecord.run_id == run_id, ExampleRecord.expert == expert)
        .group_by(bin_column)
    )
    stored_bins = {number: (count, low, high) for number, count, low, high in session.execute(stored)}
    active = max(active_tokens, 1)
    count, low, high = stored_bins.get(0, (0, 0.0, 0.0))
    top = ActivationBin(bin=0, low=low, high=high, active_tokens=count, share=count / active, examples=count)
    return (
        top,
        *(
            ActivationBin(
                bin=number,
                low=low,
                high=min(high, max_activation) if tokens else high,
                active_tokens=int(tokens),
                share=tokens / active,
                examples=stored_bins.get(number, (0,))[0],
            )
            for number, (low, high, tokens) in enumerate(_bounds(session, run_id, expert), start=1)
        ),
    )


def _bounds(session: Session, run_id: int, expert: int) -> Sequence[Sequence[float]]:
    of_expert = ExpertRecord.run_id == run_id, ExpertRecord.expert == expert
    return session.scalar(select(ExpertRecord.bins).where(*of_expert)) or ()
