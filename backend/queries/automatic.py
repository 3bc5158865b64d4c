"""Labels that programs gave. What a person wrote always goes before them, and they are marked wherever they stand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.queries.columns import among
from backend.schemas import AutomaticLabel
from trainer.store import RunRecord
from trainer.tables import AutomaticLabelRecord

FEATURES = "features"


def automatic_labels(
    session: Session, run: RunRecord, experts: Collection[int]
) -> dict[int, tuple[AutomaticLabel, ...]]:
    """All automatic labels of those of ``experts`` that have any, the one to show first.

    One that a language model was asked for goes before the one that came by itself.
    """
    table = AutomaticLabelRecord
    wanted = select(table).where(table.run_id == run.id, among(session, table.expert, experts))
    found: dict[int, list[AutomaticLabelRecord]] = defaultdict(list)
    for record in session.scalars(wanted):
        found[record.expert].append(record)
    return {
        expert: tuple(
            AutomaticLabel.model_validate(record, from_attributes=True)
            for record in sorted(records, key=lambda record: (record.maker == FEATURES, -record.balanced_accuracy))
        )
        for expert, records in found.items()
    }


def shown_labels(session: Session, run: RunRecord, experts: Collection[int]) -> dict[int, AutomaticLabel]:
    """The automatic label to show of each expert that has one."""
    return {expert: labels[0] for expert, labels in automatic_labels(session, run, experts).items()}


def automatic_like(session: Session, run: RunRecord, text: str) -> list[int]:
    """Experts with an automatic label that contains ``text``, the best fitting labels first."""
    table = AutomaticLabelRecord
    wanted = select(table.expert).where(table.run_id == run.id, table.label.icontains(text, autoescape=True))
    return list(dict.fromkeys(session.scalars(wanted.order_by(table.balanced_accuracy.desc(), table.expert))))
