"""Export experts and examples from one snapshot of the database into a new folder, atomically."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sqlalchemy.orm import Session

from mxd.backend.export.neuronpedia import Batches
from mxd.backend.export.static_site.write import write_site
from mxd.backend.export.tables import AT_A_TIME, chunks, open_run, tables
from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.queries.runs import find_run
from mxd.trainer.storage.run import Run, check_empty_folder
from mxd.trainer.utils.callbacks import Callbacks
from mxd.trainer.utils.files import atomic_directory

TableFormat = Literal["json", "csv", "parquet", "neuronpedia", "site"]


@dataclass(frozen=True)
class Target:
    """Destination and format of an export."""

    folder: Path
    """A new or empty folder."""
    format: TableFormat
    model_id: str | None = None
    """Neuronpedia's name of the language model. Default: the last part of its name here."""
    source_set: str | None = None
    """Neuronpedia's name of the set of features. Default: the run's name."""


def export_run(session: Session, run: Run, target: Target, callbacks: Callbacks) -> int:
    """Export every expert of an indexed run. Returns their number. Raises UserError if the folder is not empty, or the
    export was cancelled; no files are left, NoIndexError if the run has no index."""
    check_empty_folder(target.folder)
    exported = open_run(session, find_run(session, run.name), Vocabulary(run.tokenizer))
    target.folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_directory(target.folder) as partial:
        if target.format == "neuronpedia":
            named = target.model_id or exported.run.language_model.rstrip("/").rpartition("/")[2]
            batches = Batches(partial, exported, named, target.source_set or exported.run.name)
            for place, chunk in enumerate(chunks(session, exported), start=1):
                callbacks.check_cancelled("Cancelled; nothing was written.")
                batches.add(chunk)
                done = min(place * AT_A_TIME, exported.run.num_experts)
                callbacks.on_progress(done, exported.run.num_experts, "")
            batches.end()
            return exported.run.num_experts
        if target.format == "site":
            write_site(session, exported, run, partial, callbacks)
            return exported.run.num_experts
        with tables(partial, target.format) as (experts, examples):
            done = 0
            for chunk in chunks(session, exported):
                callbacks.check_cancelled("Cancelled; nothing was written.")
                experts.add(chunk.experts)
                examples.add(chunk.examples)
                done += len(chunk.experts)
                callbacks.on_progress(done, exported.run.num_experts, "")
            return done
