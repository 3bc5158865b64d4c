"""Units of the experts that a request edits, and the runs that can be combined with a run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.inference.run_loader import RunLoader
from mxd.backend.queries.experts import check_expert
from mxd.backend.queries.runs import find_run
from mxd.backend.schemas.routing import LayerRun, RunOptions
from mxd.trainer.config import SteeringConfig
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.inference.units import edit_units
from mxd.trainer.language_model.chat_template import has_chat_template
from mxd.trainer.storage.database.tables import IndexRecord, RunRecord
from mxd.trainer.storage.run import Run


def units_of(session: Session, library: RunLoader, run: str, request: SteeringConfig) -> dict[str, dict[int, float]]:
    """Return the units of a request, see ``edit_units``. Raises RunNotFoundError if the database has no such run,
    ExpertNotFoundError if a run has no such expert."""
    for name in dict.fromkeys((run, *(name for name, _ in request.experts(run)))):
        record = find_run(session, name)
        for expert in sorted({expert for each, expert in request.experts(run) if each == name}):
            check_expert(record, expert)

    def saved(name: str) -> Mapping[int, float]:
        with suppress(UserError):  # steering reports the error
            return library.run(name).run.units
        return {}

    return edit_units(request, run, saved, session)


NO_CHAT = "The tokenizer of this language model has no chat template. Use plain text."


def options_of(session: Session, library: RunLoader, name: str) -> RunOptions:
    """Return the runs that can be combined with a run. Raises RunNotFoundError if the database or the data folder has
    no such run."""
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
    return RunOptions(run=name, layers=layers, chat=chat, no_chat=None if chat else NO_CHAT, kinds=None)


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
