"""One expert in full."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from mxd.backend.database import annotations as notes
from mxd.backend.database import lists
from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.queries.ablation import expert_ablation
from mxd.backend.queries.automatic_labels import accuracy_interval, automatic_labels
from mxd.backend.queries.experts import find_expert, rows_of
from mxd.backend.queries.recurrence import expert_recurrence
from mxd.backend.schemas.experts import (
    ActivationBin,
    ExpertDetail,
    ListRef,
)
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import ExampleRecord, RunRecord


def expert_detail(session: Session, run: RunRecord, expert: int, vocabulary: Vocabulary) -> ExpertDetail:
    """Return an expert with its bins, note, lists, measured effects and active neighbours.

    Raises:
        NoIndexError: the run is not indexed.
        ExpertNotFoundError: the run has no such expert.
    """
    record = find_expert(session, run, expert)
    row = rows_of(session, run, [expert], vocabulary)[expert]
    automatic = automatic_labels(session, run, [expert]).get(expert, ())
    active, number = [ExpertRecord.run_id == run.id, ExpertRecord.active_tokens > 0], ExpertRecord.expert
    before = select(number).where(*active, number < expert).order_by(number.desc()).limit(1)
    after = select(number).where(*active, number > expert).order_by(number).limit(1)
    return ExpertDetail(
        row=row,
        note=notes.note_of(session, run.name, expert),
        lists=tuple(
            ListRef(id=number, name=name) for number, name in lists.lists_holding(session, run.name, [expert])[expert]
        ),
        previous=session.scalar(before),
        next=session.scalar(after),
        bins=_bins(session, record),
        automatic_labels=automatic,
        accuracy_interval=accuracy_interval(automatic[0].model_dump(), record.density) if automatic else None,
        recurrence=expert_recurrence(session, run, expert),
        ablation=expert_ablation(session, run, expert, vocabulary),
    )


def _bins(session: Session, record: ExpertRecord) -> tuple[ActivationBin, ...]:
    """Return the top examples and the activation bins. The highest bin with active tokens ends at the maximum."""
    bin_column, activation = ExampleRecord.bin, ExampleRecord.activation
    stored = (
        select(bin_column, func.count(), func.min(activation), func.max(activation))
        .where(ExampleRecord.run_id == record.run_id, ExampleRecord.expert == record.expert)
        .group_by(bin_column)
    )
    stored_bins = {number: (count, low, high) for number, count, low, high in session.execute(stored)}
    active = max(record.active_tokens, 1)
    count, low, high = stored_bins.get(0, (0, 0.0, 0.0))
    top = ActivationBin(bin=0, low=low, high=high, active_tokens=count, share=count / active, examples=count)
    return (
        top,
        *(
            ActivationBin(
                bin=number,
                low=low,
                high=min(high, record.max_activation) if tokens else high,
                active_tokens=int(tokens),
                share=tokens / active,
                examples=stored_bins.get(number, (0,))[0],
            )
            for number, (low, high, tokens) in enumerate(record.bins, start=1)
        ),
    )
