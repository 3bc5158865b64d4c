"""What the store knows of the experts that a request edits."""

from __future__ import annotations

from sqlalchemy.orm import Session

from backend.queries.experts import check_expert, units
from backend.queries.runs import find_run
from trainer.config import SteeringConfig


def units_of(session: Session, run: str, request: SteeringConfig) -> dict[str, dict[int, float]]:
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
    return {name: units(session, records[name], edited) for name, edited in experts.items()}
