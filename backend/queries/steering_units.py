"""Options of a run for routing and steering: its units, and the runs that can be combined with it.

Units of the experts that a request edits.

Runs that can be combined with a run, and chat support.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.inference.run_loader import RunLoader
from mxd.backend.queries.experts import check_expert, units
from mxd.backend.queries.runs import find_run
from mxd.backend.schemas.routing import LayerRun, RoutingOptions
from mxd.trainer.config import SteeringConfig
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.language_model.chat_template import has_chat_template
from mxd.trainer.storage.database.tables import IndexRecord, RunRecord
from mxd.trainer.storage.run import Run


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


NO_CHAT = "The tokenizer of this language model has no chat template. Use plain text."


def options_of(session: Session, library: RunLoader, name: str) -> RoutingOptions:
    """Return the runs that can be combined with a run.

    Raises:
        RunNotFoundError: the database or the data folder has no such run.
    """
    record = find_run(session, name)
    known = library.run(name)
    run = known.run
    indexed = set(session.scalars(select(IndexRecord.run_id)))
    query = select(RunRecord).where(RunRecord.layer != record.layer).order_by(RunRecord.layer, RunRecord.name)
    layers = tuple(
        LayerRun(name=other.name, layer=other.layer, method=other.method, indexed=other.id in indexed)
        for other in session.scalars(query)
        if _is_compatible(library, run, other.name)
    )
    chat = has_chat_template(known.tokenizer)
    return RoutingOptions(run=name, layers=layers, chat=chat, no_chat=None if chat else NO_CHAT)


def _is_compatible(library: RunLoader, run: Run, other: str) -> bool:
    """Return whether another run replaces another layer of the same language model and has weights."""
    try:
        other_run = Run.load(other, library.data)
        return (
            other_run.config.layer != run.config.layer
            and other_run.language_model_source == run.language_model_source
            and other_run.weights_folder.is_dir()
        )
    except (NotFoundError, UserError):
        return False
