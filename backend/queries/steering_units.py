"""Units of the experts that a request edits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from sqlalchemy.orm import Session

from mxd.backend.inference.run_loader import RunLoader
from mxd.backend.queries.experts import check_expert, units
from mxd.backend.queries.runs import find_run
from mxd.trainer.config import SteeringConfig
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.tables import IndexRecord, RunRecord


def units_of(session: Session, library: RunLoader, run: str, request: SteeringConfig) -> dict[str, dict[int, float]]:
    """Return run -> expert -> 99th percentile for every edited, tested or control expert, the steered run first.

    Raises:
        RunNotFoundError: the database has no such run.
        ExpertNotFoundError: a run has no such expert.
    """
    experts: dict[str, set[int]] = {run: set()}
    for name, expert in request.experts(run):
        experts.setdefault(name, set()).add(expert)
    records = {name: find_run(session, name) for name in experts}
    for name, edited in experts.items():
        for expert in edited:
            check_expert(records[name], expert)
    return {name: _units(session, library, records[name], edited) for name, edited in experts.items()}


def _units(session: Session, library: RunLoader, run: RunRecord, experts: Collection[int]) -> dict[int, float]:
    """Return the units from the index or, without an index, from the run directory."""
    if session.get(IndexRecord, run.id) is not None:
        return units(session, run, experts)
    stored: Mapping[int, float] = {}
    with suppress(UserError):  # steering reports the error
        stored = library.run(run.name).run.units
    return {expert: stored.get(expert, 1.0) for expert in experts}
