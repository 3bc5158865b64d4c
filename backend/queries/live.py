"""Which runs go together, and what their tokenizer can write."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.library import Library
from backend.queries.runs import find_run
from backend.schemas import LayerRun, LiveOptions
from trainer.chat import has_chat_template
from trainer.errors import NotFoundError, UserError
from trainer.run import Run
from trainer.store import IndexRecord, RunRecord

NO_CHAT = "The tokenizer of this language model has no chat template, so prompts are plain text."


def live_options(session: Session, library: Library, name: str) -> LiveOptions:
    """What goes together with a run of this name.

    Raises:
        RunNotFoundError: the store or the data folder has none.
    """
    record = find_run(session, name)
    known = library.run(name)
    run = known.run
    indexed = set(session.scalars(select(IndexRecord.run_id)))
    wanted = select(RunRecord).where(RunRecord.layer != record.layer).order_by(RunRecord.layer, RunRecord.name)
    layers = tuple(
        LayerRun(name=other.name, layer=other.layer, method=other.method, indexed=other.id in indexed)
        for other in session.scalars(wanted)
        if _is_beside(library, run, other.name)
    )
    chat = has_chat_template(known.tokenizer)
    return LiveOptions(run=name, layers=layers, chat=chat, no_chat=None if chat else NO_CHAT)


def _is_beside(library: Library, run: Run, other: str) -> bool:
    """Whether another run is of other layers of the same language model and has weights to use."""
    try:
        found = Run.load(other, library.data)
        apart = set(found.config.layers).isdisjoint(run.config.layers)
        return apart and found.language_model_source == run.language_model_source and found.weights_folder.is_dir()
    except (NotFoundError, UserError):
        return False
