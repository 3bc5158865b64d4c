"""A run's experts and contexts, from one state of the store into a new folder, all at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.orm import Session

from backend.exporting.formats import ExportFormat
from backend.exporting.neuronpedia import Batches
from backend.exporting.plain import tables
from backend.exporting.rows import AT_A_TIME, Exported, chunks, open_run
from backend.queries.runs import find_run
from backend.vocabulary import Vocabulary
from trainer.errors import UserError
from trainer.files import whole_folder
from trainer.progress import Progress, ShouldStop
from trainer.run import Run
from trainer.sharing import refuse_full


@dataclass(frozen=True)
class Target:
    """Where to and how."""

    folder: Path
    """New or empty."""
    format: ExportFormat
    model_id: str | None = None
    """What Neuronpedia calls the language model; by default the last part of its name here."""


def export_run(session: Session, run: Run, target: Target, progress: Progress, should_stop: ShouldStop) -> int:
    """Write every expert of an indexed run. Returns how many.

    Raises:
        UserError: there is something in the folder, or it was stopped; nothing is left of it then.
        NoIndexError: the run has no index.
    """
    refuse_full(target.folder)
    exported = open_run(session, find_run(session, run.name), Vocabulary(run.tokenizer))
    target.folder.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(target.folder) as partial:
        if target.format == "neuronpedia":
            return _export_batches(session, exported, partial, target, progress, should_stop)
        with tables(partial, target.format) as (experts, contexts):
            done = 0
            for chunk in chunks(session, exported):
                _refuse_if(should_stop)
                experts.add(chunk.experts)
                contexts.add(chunk.contexts)
                done += len(chunk.experts)
                progress(done, exported.run.num_experts, "")
            return done


def _export_batches(
    session: Session, exported: Exported, folder: Path, target: Target, progress: Progress, should_stop: ShouldStop
) -> int:
    named = target.model_id or exported.run.language_model.rstrip("/").rpartition("/")[2]
    batches = Batches(folder, exported, named, exported.run.name)
    for place, chunk in enumerate(chunks(session, exported)):
        _refuse_if(should_stop)
        batches.add(chunk)
        progress(min((place + 1) * AT_A_TIME, exported.run.num_experts), exported.run.num_experts, "")
    batches.end()
    return exported.run.num_experts


def _refuse_if(should_stop: ShouldStop) -> None:
    if should_stop():
        raise UserError("stopped; nothing was written")
