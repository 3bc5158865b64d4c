"""What is known of the experts that a request edits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from sqlalchemy.orm import Session

from backend.library import Library
from backend.queries.experts import check_expert, units
from backend.queries.runs import find_run
from trainer.config import SteeringConfig
from trainer.errors import UserError
from trainer.store import IndexRecord, RunRecord


def units_of(session: Session, library: Library, run: str, request: SteeringConfig) -> dict[str, dict[int, float]]:
    """Run -> expert -> its 99th percentile, of every edited expert; the run that is steered comes first.

    Raises:
        RunNotFoundError: the store has no such run.
        ExpertNotFoundError: a run has no such expert.
    """
    experts: dict[str, set[int]] = {run: set()}
    for edit in request.edits:
        experts.setdefault(edit.run or run, set()).add(edit.expert)
    records = {name: find_run(session, name) for name in experts}
    for name, edited in experts.items():
        for expert in edited:
            check_expert(records[name], expert)
    return {name: _units(session, library, records[name], edited) for name, edited in experts.items()}


def _units(session: Session, library: Library, run: RunRecord, experts: Collection[int]) -> dict[int, float]:
    """As the store has them; of a run that it has no index of, as they are kept beside its weights."""
    if session.get(IndexRecord, run.id) is not None:
        return units(session, run, experts)
    kept: Mapping[int, float] = {}
    with suppress(UserError):  # whoever steers with it is told
        kept = library.run(run.name).run.units
    return {expert: kept.get(expert, 1.0) for expert in experts}
